"""Several runs of one shape, trained by one program: for accelerators that one would not fill.

Each run has its directory, as if it were alone; only its last bits differ.
"""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from recombine.config import Config
from recombine.errors import InputError
from recombine.experiment.interrupt import StopRequest
from recombine.experiment.run import Progress, Running, RunOptions
from recombine.experiment.rundir import RunDirectory
from recombine.train.loop import NonFiniteLoss, train, train_together
from recombine.train.step import compiled_part


def check_one_shape(configs: Sequence[Config]) -> None:
    """Only seeds and supports may differ."""
    if len({(compiled_part(config), config.measure) for config in configs}) > 1:
        raise InputError("together", len(configs), "runs of one shape: only seeds and supports may differ")


def run_together(
    configs: Sequence[Config],
    paths: Sequence[Path],
    options: RunOptions | None = None,
    request: StopRequest | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Generator[Progress, None, None]:
    """Start or continue the runs in the directories; progress is that of the first of them that goes on.

    Those that are behind, as after a crash, are first brought to where the others are, one by one.
    """
    check_one_shape(configs)
    options, request = replace(options or RunOptions(), together=True), request or StopRequest()
    with ExitStack() as stack:
        runs: list[Running] = []
        for config, path in zip(configs, paths, strict=True):
            directory = stack.enter_context(RunDirectory(path))
            running = Running(config, directory, options, request, say)
            stack.enter_context(running.answerable())
            yield from running.begin()
            runs.append(running)
        furthest = max(running.step for running in runs)
        for running in runs:
            for snapshot in train(running.config, running.tasks, running.state, running.step, running.every, furthest):
                yield running.take(snapshot)
                if request.requested():
                    break
        if not request.requested():
            yield from _train(runs, furthest, request)
        failed = [running for running in runs if running.failed]
        for running in runs:
            if not running.failed:
                running.end()
    if failed:
        raise NonFiniteLoss(f"{len(failed)} of {len(runs)} runs diverged: {', '.join(map(_name, failed))}")


def _train(runs: list[Running], step: int, request: StopRequest) -> Generator[Progress, None, None]:
    first, going = runs[0], list(runs)
    seeds = [running.config.seed for running in runs]
    tasks, states = [running.tasks for running in runs], [running.state for running in runs]
    for snapshots in train_together(first.config, seeds, tasks, states, step, first.every, first.last):
        furthest = max(snapshot.step for snapshot in snapshots)
        for running, snapshot in zip(runs, snapshots, strict=True):
            if running in going and snapshot.step == furthest:
                progress = running.take(snapshot)
                if running is going[0]:
                    yield progress
            elif running in going:
                going.remove(running)
                step = snapshot.step
                running.fail(NonFiniteLoss(f"step {step} was not taken: its loss or its gradient is not finite"))
        if request.requested() or not going:
            return
        for running in going:
            running.since = time.monotonic()  # what the others measured is not this one's training


def _name(running: Running) -> str:
    return running.directory.path.name
