"""A job, one run or the references of some; and how it is carried out, wherever that is."""

import time
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from recombine.errors import InputError, InUse
from recombine.experiment.interrupt import StopRequest

if TYPE_CHECKING:
    from recombine.experiment.run import Progress

SECONDS_BETWEEN_EVENTS = 0.5
SECONDS_OF_PATIENCE = 60.0
MOST_SHAPES = 8  # whose programs a process keeps: each takes some 70 MB
ERRORS = (InputError, OSError, ArithmeticError, MemoryError)  # what ends a job, and not the process it is in


class Job(NamedTuple):
    """What is to be done, as JSON (see `carry_out`), under a name for people."""

    name: str
    request: dict[str, Any]


def keep_shape(kept: set[str], shape: str) -> set[str]:
    """The shapes whose programs a process has after one more, if it forgets them all when there are too many."""
    return kept | {shape} if shape in kept or len(kept) < MOST_SHAPES else {shape}


class Event(NamedTuple):
    """What became of a job: `started`, `progress`, `said`, `done`, `failed` or `interrupted`."""

    job: Job
    kind: str
    data: dict[str, Any]


def carry_out(job: dict[str, Any], request: StopRequest, tell: Callable[..., None]) -> None:
    """The work of a job's request, in this process. `tell("progress", step=…)` says how far it is."""
    from recombine.config import Config
    from recombine.config_file import override, parse_toml
    from recombine.model.own import import_model

    if job.get("own"):
        import_model(job["own"])
    parts = job.get("runs") or [job]  # several that are trained together, or one
    configs = [override(Config(), parse_toml(part["config"], "job")) for part in parts]
    paths = [Path(part["path"]) for part in parts]
    if job["kind"] == "references":
        from recombine.experiment.reference import store_references

        with request.may_leave(lambda: None):
            store_references(paths[0], configs[0])
        return
    from recombine.experiment.run import RunOptions, run
    from recombine.experiment.rundir import is_done
    from recombine.experiment.together import run_together

    def say(text: str) -> None:
        tell("said", text=text)

    def train() -> "Generator[Progress, None, None]":
        options = RunOptions(resume_anyway=job.get("resume_anyway", False))
        if job.get("runs"):
            return run_together(configs, paths, options, request, say)
        return run(configs[0], paths[0], options, request, say)

    told, diverged = 0.0, None
    try:
        with closing(_patiently(train, request)) as reports:
            for report in reports:
                if time.monotonic() - told >= SECONDS_BETWEEN_EVENTS or report.step == configs[0].optimizer.num_steps:
                    told = time.monotonic()
                    tell("progress", step=report.step, loss=report.loss, row=report.row)
    except ArithmeticError as error:  # of runs that were trained together, others may be done
        diverged = error
    if request.requested():
        return
    from recombine.experiment.scorecard import store_scorecard
    from recombine.experiment.selection import store_selection
    from recombine.experiment.trained import load_trained

    with request.may_leave(lambda: None):
        for path in paths:
            if not is_done(path):
                continue
            trained = load_trained(path)
            for kind in job.get("after", ()):
                {"scorecard": store_scorecard, "selection": store_selection}[kind](path, trained)

    if diverged is not None:
        raise diverged


def _patiently(
    train: "Callable[[], Generator[Progress, None, None]]", request: StopRequest
) -> "Generator[Progress, None, None]":
    """Wait for a run that is in use: the worker of a coordinator that was killed may still be saving it."""
    deadline = time.monotonic() + SECONDS_OF_PATIENCE
    while not request.requested():
        training = train()
        try:
            first = next(training, None)
        except InUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
            continue
        if first is not None:
            yield first
            yield from training
        return


def failure(error: BaseException) -> dict[str, Any]:
    """What is told of an error. What only depends on the configuration would fail again."""
    hopeless = isinstance(error, InputError | ArithmeticError) and not isinstance(error, InUse)
    return {"error": str(error) or type(error).__name__, "hopeless": hopeless}
