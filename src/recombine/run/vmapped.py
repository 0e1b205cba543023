"""Trains several same-shape runs (usually seeds) in one vmapped program.

This is for accelerators that a single run would not fill. Each run has its own directory, as if it were trained alone;
only the last bits of its numbers differ.
"""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from recombine.config.schema import Config
from recombine.errors import InputError
from recombine.model.custom import torch_class
from recombine.run.signals import StopSignal
from recombine.run.start import check_start
from recombine.run.training import Progress, RunOptions, RunTraining, restore
from recombine.storage.writer import RunDirectory
from recombine.train.loop import NonFiniteLoss, train_vmapped
from recombine.train.step import compiled_part


def check_one_shape(configs: Sequence[Config]) -> None:
    """Refuse runs that differ in more than seed and support."""
    if len({(compiled_part(config), config.measure) for config in configs}) > 1:
        raise InputError("vmap", len(configs), "runs of one shape: only seeds and supports may differ")
    if len(configs) > 1 and torch_class(configs[0]) is not None:
        raise InputError("vmap", len(configs), "1 for a PyTorch model, which JAX cannot vmap")


def execute_vmapped(
    configs: Sequence[Config],
    paths: Sequence[Path],
    options: RunOptions | None = None,
    stop: StopSignal | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Generator[Progress, None, None]:
    """Start or resume the runs in the directories, and yield the progress of each.

    Runs that are behind (after a crash, or when seeds were added) are first trained to the step of the others.
    """
    check_one_shape(configs)
    for config, path in zip(configs, paths, strict=True):
        check_start(config, path)
    options, stop = replace(options or RunOptions(), vmapped=len(configs)), stop or StopSignal()
    runs: list[RunTraining] = []
    with ExitStack() as stack:
        try:
            for config, path in zip(configs, paths, strict=True):
                directory = stack.enter_context(RunDirectory(path))
                run = RunTraining(config, directory, options, stop, restore(config, directory, options, say))
                runs.append(run)
                with run.recording_failure():
                    yield from run.start()
            last = runs[0].last_step
            for step in sorted({min(run.step, last) for run in runs} | {last}):
                behind = [run for run in runs if run.step < step and not run.failed]
                if behind and not stop.requested():
                    yield from _train(behind, step, stop, runs)
        except BaseException:
            for run in runs:
                run.record_stopped()
            raise
        for run in runs:
            if not run.failed:
                run.finish()
    if failed := [run.directory.path.name for run in runs if run.failed]:
        raise NonFiniteLoss(f"{len(failed)} of {len(runs)} runs diverged: {', '.join(failed)}")


def _train(runs: list[RunTraining], last: int, stop: StopSignal, group: list[RunTraining]) -> Iterator[Progress]:
    """Train runs that are at the same step up to step `last`. If compiling is interrupted, all of `group` record it."""
    first, seeds = runs[0], [run.config.seed for run in runs]
    tasks, states = [run.tasks for run in runs], [run.state for run in runs]
    dispatches = train_vmapped(first.config, seeds, tasks, states, first.step, first.every, last)
    for run in runs:
        run.save_if_needed()
        run.compiled = False  # there is no program for this number of runs yet
    _start_the_clock(runs)
    with stop.exit_allowed(lambda: _record_interrupted(group)):
        compiled = list(islice(dispatches, 1))
    for snapshots, finite in chain(compiled, dispatches):
        trained_at = time.monotonic()
        for run, snapshot, is_finite in zip(runs, snapshots, finite, strict=True):
            with suppress(ArithmeticError), run.recording_failure():
                if len(snapshot.losses) and not run.failed:
                    yield run.advance(snapshot, trained_at)
                if not is_finite and not run.failed:
                    raise NonFiniteLoss(f"step {snapshot.step} was not taken: its loss or its gradient is not finite")
        if stop.requested() or all(run.failed for run in runs):
            return
        _start_the_clock(runs)


def _start_the_clock(runs: list[RunTraining]) -> None:
    """Restart the clock of the runs, so that time spent on other runs is not counted as their training."""
    for run in runs:
        run.trained_since = time.monotonic()


def _record_interrupted(group: list[RunTraining]) -> None:
    for run in group:
        if not run.failed:
            run.record_interrupted()
