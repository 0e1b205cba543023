"""A job, one run or the references of some; and how it is carried out, wherever that is."""

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from recombine.errors import InputError
from recombine.experiment.interrupt import StopRequest

SECONDS_BETWEEN_EVENTS = 0.5
ERRORS = (InputError, OSError, ArithmeticError, MemoryError)  # what ends a job, and not the process it is in


class Job(NamedTuple):
    """What is to be done, as JSON (see `carry_out`), under a name for people."""

    name: str
    request: dict[str, Any]


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
    from recombine.experiment.together import run_together

    def say(text: str) -> None:
        tell("said", text=text)

    told = 0.0
    options = RunOptions(resume_anyway=job.get("resume_anyway", False))
    if job.get("runs"):
        training = run_together(configs, paths, options, request, say)
    else:
        training = run(configs[0], paths[0], options, request, say)
    with closing(training) as reports:
        for report in reports:
            if time.monotonic() - told >= SECONDS_BETWEEN_EVENTS or report.step == configs[0].optimizer.num_steps:
                told = time.monotonic()
                tell("progress", step=report.step, loss=report.loss, row=report.row)
    if request.requested():
        return
    from recombine.experiment.scorecard import store_scorecard
    from recombine.experiment.selection import store_selection
    from recombine.experiment.trained import load_trained

    with request.may_leave(lambda: None):
        for path in paths:
            trained = load_trained(path)
            for kind in job.get("after", ()):
                {"scorecard": store_scorecard, "selection": store_selection}[kind](path, trained)


def failure(error: BaseException) -> dict[str, Any]:
    """What is told of an error. What only depends on the configuration would fail again."""
    hopeless = isinstance(error, InputError | ArithmeticError)
    return {"error": str(error) or type(error).__name__, "hopeless": hopeless}
