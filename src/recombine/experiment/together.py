"""Several runs of one shape, trained by one program: for accelerators that one would not fill.

Each run has its directory, as if it were alone; only its last bits differ.
"""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from recombine.config import Config
from recombine.errors import InputError
from recombine.experiment.interrupt import StopRequest
from recombine.experiment.run import Progress, Running, RunOptions
from recombine.experiment.rundir import RunDirectory
from recombine.train.loop import NonFiniteLoss, train_together
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
    """Start or continue the runs in the directories; progress is that of each of them.

    Those that are behind, as after a crash or where seeds were added, are first brought to where others are, together.
    """
    check_one_shape(configs)
    options, request = replace(options or RunOptions(), together=len(configs)), request or StopRequest()
    runs: list[Running] = []
    with ExitStack() as stack:
        try:
            for config, path in zip(configs, paths, strict=True):
                running = Running(config, stack.enter_context(RunDirectory(path)), options, request, say)
                runs.append(running)
                with running.blamed():
                    yield from running.begin()
            last = runs[0].last
            for step in sorted({min(running.step, last) for running in runs} | {last}):
                behind = [running for running in runs if running.step < step and not running.failed]
                if behind and not request.requested():
                    yield from _train(behind, step, request, runs)
        except BaseException:
            for running in runs:
                running.leave()
            raise
        for running in runs:
            if not running.failed:
                running.end()
    if failed := [running for running in runs if running.failed]:
        raise NonFiniteLoss(f"{len(failed)} of {len(runs)} runs diverged: {', '.join(map(_name, failed))}")


def _train(runs: list[Running], last: int, request: StopRequest, group: list[Running]) -> Iterator[Progress]:
    """Runs that are at one step, up to another; where compiling is interrupted, all of the group say so."""
    first, seeds = runs[0], [running.config.seed for running in runs]
    tasks, states = [running.tasks for running in runs], [running.state for running in runs]
    dispatches = train_together(first.config, seeds, tasks, states, first.step, first.every, last)
    for running in runs:
        running.keep()
        running.compiled = False  # nothing was for as many as these
    _start_the_clock(runs)
    with request.may_leave(lambda: _say_interrupted(group)):
        compiled = list(islice(dispatches, 1))
    for snapshots, finite in chain(compiled, dispatches):
        trained = time.monotonic()
        for running, snapshot, goes_on in zip(runs, snapshots, finite, strict=True):
            with suppress(ArithmeticError), running.blamed():
                if len(snapshot.losses) and not running.failed:
                    yield running.take(snapshot, trained)
                if not goes_on and not running.failed:
                    raise NonFiniteLoss(f"step {snapshot.step} was not taken: its loss or its gradient is not finite")
        if request.requested() or all(running.failed for running in runs):
            return
        _start_the_clock(runs)


def _start_the_clock(runs: list[Running]) -> None:
    """What others trained or measured meanwhile is not these runs' training."""
    for running in runs:
        running.since = time.monotonic()


def _say_interrupted(group: list[Running]) -> None:
    for running in group:
        if not running.failed:
            running.interrupted()


def _name(running: Running) -> str:
    return running.directory.path.name
