"""Executes one job in this process: train and measure runs, or compute references."""

import time
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from recombine.errors import InUse, memory_errors
from recombine.jobs.protocol import Job, News
from recombine.run.signals import StopSignal
from recombine.storage.locking import Writing

if TYPE_CHECKING:
    from recombine.run.training import Progress

SECONDS_BETWEEN_NEWS = 0.5
SECONDS_OF_PATIENCE = 60.0

Tell = Callable[[News], None]


def execute_job(job: Job, stop: StopSignal, tell: Tell) -> None:
    """Execute a job. `tell` is called with news of its progress."""
    with memory_errors():
        _execute(job, stop, tell)


def _execute(job: Job, stop: StopSignal, tell: Tell) -> None:
    from recombine.config.schema import Config
    from recombine.config.toml import override, parse_toml
    from recombine.model.custom import import_model

    if job.custom:
        import_model(job.custom)
    if job.custom_task:
        from recombine.task.custom_task import import_task

        import_task(job.custom_task)
    configs = [override(Config(), parse_toml(part.config, "job")) for part in job.parts]
    paths = [Path(part.path) for part in job.parts]

    def say(text: str) -> None:
        tell(News(kind="said", text=text))

    if job.kind == "references":
        from recombine.storage.reference_files import store_references

        with stop.exit_allowed(lambda: None):
            store_references(paths[0].parent, configs[0], say, stop.writing)
        return
    from recombine.run.training import RunOptions, execute_run
    from recombine.run.vmapped import execute_vmapped

    def train() -> "Generator[Progress, None, None]":
        options = RunOptions(resume_anyway=job.resume_anyway)
        if len(configs) > 1:
            return execute_vmapped(configs, paths, options, stop, say)
        return execute_run(configs[0], paths[0], options, stop, say)

    told, diverged = 0.0, None
    try:
        with closing(_wait_while_in_use(train, stop)) as reports:
            for report in reports:
                if time.monotonic() - told >= SECONDS_BETWEEN_NEWS or report.step == configs[0].optimizer.num_steps:
                    told = time.monotonic()
                    tell(News(kind="progress", step=report.step, loss=report.loss, row=report.row))
    except ArithmeticError as error:  # other runs of the same vmapped program may be done
        diverged = error
    if stop.requested():
        return
    with stop.exit_allowed(lambda: None):
        _measure(job, paths, say, stop.writing)
    if diverged is not None:
        raise diverged


def _measure(job: Job, paths: list[Path], say: Callable[[str], None], writing: Writing) -> None:
    """Make the measurements that the job asks for, for each of its runs that is done."""
    from recombine.jobs.selection import store_selection
    from recombine.run.examine import scorecard_of
    from recombine.run.load import load_model
    from recombine.storage.reader import is_done
    from recombine.storage.source import DirectorySource

    for path in paths:
        if not is_done(DirectorySource(path)):
            continue
        trained = load_model(path)
        for kind in job.after:
            match kind:
                case "scorecard":
                    scorecard_of(path, trained, say, writing)
                case "selection":
                    store_selection(path, trained, writing)


def _wait_while_in_use(
    train: "Callable[[], Generator[Progress, None, None]]", stop: StopSignal
) -> "Generator[Progress, None, None]":
    """Train, but wait while the run is in use: the worker of a killed coordinator may still be saving it."""
    deadline = time.monotonic() + SECONDS_OF_PATIENCE
    while not stop.requested():
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
