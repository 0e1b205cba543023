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
    config = override(Config(), parse_toml(job["config"], "job"))
    path = Path(job["path"])
    if job["kind"] == "references":
        from recombine.experiment.reference import store_references

        with request.may_leave(lambda: None):
            store_references(path, config)
        return
    from recombine.experiment.run import RunOptions, run

    told = 0.0
    options = RunOptions(resume_anyway=job.get("resume_anyway", False))
    with closing(run(config, path, options, request, lambda text: tell("said", text=text))) as reports:
        for report in reports:
            if time.monotonic() - told >= SECONDS_BETWEEN_EVENTS or report.step == config.optimizer.num_steps:
                told = time.monotonic()
                tell("progress", step=report.step, loss=report.loss, row=report.row)
    if request.requested():
        return
    from recombine.experiment.scorecard import store_scorecard
    from recombine.experiment.selection import store_selection
    from recombine.experiment.trained import load_trained

    with request.may_leave(lambda: None):
        trained = load_trained(path)
        for kind in job.get("after", ()):
            {"scorecard": store_scorecard, "selection": store_selection}[kind](path, trained)


def failure(error: BaseException) -> dict[str, Any]:
    """What is told of an error. What only depends on the configuration would fail again."""
    hopeless = isinstance(error, InputError | ArithmeticError)
    return {"error": str(error) or type(error).__name__, "hopeless": hopeless}
