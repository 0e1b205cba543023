"""Executes one run: trains a model, measures it, stores both, and resumes an interrupted run.

The newest checkpoint contains everything that a run needs to resume: the state, the losses since the last row of
metrics, the rows so far and the configuration. Anything written after that checkpoint is computed again, bit for bit.
"""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from recombine.checks import check_number, check_size
from recombine.config.schema import Config, custom_model, custom_task
from recombine.config.toml import other_model, write_toml
from recombine.errors import InputError, describe, out_of_memory
from recombine.measure.snapshot import SnapshotEpisodes, measure_parts, snapshot_episodes
from recombine.model.weights import named_arrays
from recombine.record.run_state import Change, Environment, Identity, RunState, TimingRow
from recombine.record.score import MetricsRow
from recombine.run.load import LOSSES, restore_state
from recombine.run.machine import identity, peak_memory, this_start
from recombine.run.resume import last_metrics, newest_checkpoint, what_changed
from recombine.run.signals import StopSignal
from recombine.run.start import check_start, first_state, read_start
from recombine.storage.checkpoint import Checkpoint, save_checkpoint
from recombine.storage.source import CONFIG, METRICS
from recombine.storage.writer import RunDirectory
from recombine.train.loop import Snapshot, check_devices, train
from recombine.train.step import State, Tasks, config_tasks, init_state

PHASES = ("start", "compile", "train", "measure", "save")


@dataclass(frozen=True)
class RunOptions:
    """How a run is executed. The options do not affect its result, except that `devices` and `vmapped` change last
    bits."""

    devices: int = 1
    save_every: float = 60.0  # seconds
    stop_at: int | None = None
    resume_anyway: bool = False
    vmapped: int = 1  # the number of runs that one vmapped program trains

    def __post_init__(self) -> None:
        check_number("save_every", self.save_every, least=0.0)
        if self.stop_at is not None:
            check_size("stop_at", self.stop_at, least=0, most=2**31 - 1)


class Progress(NamedTuple):
    """The progress of a run: the steps done, the mean loss of the latest steps, and the newest row of metrics."""

    step: int
    loss: float | None
    row: MetricsRow | None


def execute_run(
    config: Config,
    path: Path,
    options: RunOptions | None = None,
    stop: StopSignal | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Generator[Progress, None, None]:
    """Start or resume the run in the directory, and yield its progress. The last report has the final scores."""
    options = options or RunOptions()
    check_devices(config, options.devices)
    check_start(config, path)
    with RunDirectory(path) as directory:
        restored = restore(config, directory, options, say)
        yield from RunTraining(config, directory, options, stop or StopSignal(), restored).run()


class Restored(NamedTuple):
    """The starting point of a run: its newest good checkpoint, or a fresh state in a new directory."""

    state: State
    step: int
    metrics: str
    """The text of metrics.jsonl at that step."""
    losses: np.ndarray
    """The losses since the last row of metrics."""
    is_new: bool
    identity: Identity
    changed: dict[str, tuple[Any, Any]]
    """The settings that differ from those of the run, accepted by `--resume-anyway`."""
    started: float
    """The time of the start, on the monotonic clock."""


def restore(config: Config, directory: RunDirectory, options: RunOptions, say: Callable[[str], None]) -> Restored:
    """Find the starting point of a run. Refuses a run that cannot resume, before anything is written."""
    started = time.monotonic()
    now = identity(options.devices, options.vmapped, custom_model(config), custom_task(config))
    newest = newest_checkpoint(directory, say)
    start = read_start(config) if newest is None else None
    digest = newest.identity.start if newest is not None else "" if start is None else start.digest
    now = msgspec.structs.replace(now, start=digest)
    changed = what_changed(directory, newest, config, now, say)
    if there := other_model(changed):
        raise InputError("out", str(directory.path), f"has a run of another model ({there}); name another directory")
    if changed and not options.resume_anyway:
        shown = "; ".join(f"{name}: {old} → {new}" for name, (old, new) in changed.items())
        raise InputError("out", str(directory.path), f"made with other settings: {shown} (--resume-anyway resumes)")
    if newest is None:
        state = first_state(init_state(config), start)
        return Restored(state, 0, "", np.zeros(0, np.float32), True, now, changed, started)
    arrays = dict(newest.arrays)
    losses = arrays.pop(LOSSES)
    state = restore_state(config, arrays, f"step {newest.step} of {directory.path}")
    if newest.step < config.optimizer.num_steps:
        say(f"resuming at step {newest.step}")
    return Restored(state, newest.step, newest.texts[METRICS], losses, False, now, changed, started)


class RunTraining:
    """A run in training: its state in memory, and how much of it is saved."""

    def __init__(
        self, config: Config, directory: RunDirectory, options: RunOptions, stop: StopSignal, restored: Restored
    ):
        self.config, self.directory, self.options, self.stop = config, directory, options, stop
        self.num_steps = config.optimizer.num_steps
        self.last_step = self.num_steps if options.stop_at is None else min(self.num_steps, options.stop_at)
        self.every = -(-self.num_steps // config.measure.snapshots)
        self.restored, self.identity = restored, restored.identity
        self.step, self.state = restored.step, restored.state
        self.metrics, self.losses = restored.metrics, restored.losses
        self.row = last_metrics(self.metrics)
        self.saved_step: int | None = None if restored.is_new else restored.step
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.timed_steps = 0  # the steps done in `seconds["train"]`
        self.compiled = False  # the first dispatch compiles
        self.failed = self.finished = False
        self.saved_at = self.trained_since = time.monotonic()
        self.timed_until = time.process_time()  # the processor time that rows of timing account for

    @cached_property
    def tasks(self) -> Tasks:
        return config_tasks(self.config)

    @cached_property
    def episodes(self) -> SnapshotEpisodes:
        return snapshot_episodes(self.config, self.tasks.teacher)

    def run(self) -> Iterator[Progress]:
        """Train to the end, or until a stop is requested. However the run ends, its status file records it."""
        try:
            with self.recording_failure():
                yield from self.start()
                devices = self.options.devices
                snapshots = train(self.config, self.tasks, self.state, self.step, self.every, self.last_step, devices)
                with self._exit_allowed():  # the first dispatch compiles, which cannot be interrupted
                    first = list(islice(snapshots, 1))
                for snapshot in chain(first, snapshots):
                    yield self.advance(snapshot)
                    if self.stop.requested():
                        break
                self.finish()
        except GeneratorExit:
            self.record_stopped()
            raise

    @contextmanager
    def recording_failure(self) -> Iterator[None]:
        """Record an error inside as the failure of this run. Closing the generator does not mark the run as failed."""
        try:
            yield
        except GeneratorExit:
            raise
        except BaseException as error:
            self.failed = True
            with suppress(OSError, MemoryError):  # the disk may be full: the first error is the one to report
                self._write_status("failed", describe(error))
            if not out_of_memory(error):
                raise
            said = str(error).partition("\n")[0]
            kept = "nothing is saved yet" if self.saved_step is None else f"step {self.saved_step} is saved"
            raise MemoryError(f"{said}; {kept}" if said else kept) from error

    def start(self) -> Iterator[Progress]:
        """Do everything up to the first training step: write the directory's files, and measure if that is due."""
        self._write_start()
        yield self._progress()
        with self._exit_allowed():
            _ = self.tasks, self.episodes  # compile them here, where a signal ends the process at once
        self.seconds["start"] = time.monotonic() - self.restored.started
        if self._measure_is_due() and self._measure():
            self._save()
        yield self._progress()
        self.saved_at = self.trained_since = time.monotonic()

    def advance(self, snapshot: Snapshot, trained_at: float | None = None) -> Progress:
        """Take over a snapshot that was trained by the time `trained_at` (default: now); measure and save if due."""
        seconds = (time.monotonic() if trained_at is None else trained_at) - self.trained_since
        self.seconds["train" if self.compiled else "compile"] += seconds
        self.timed_steps += len(snapshot.losses) if self.compiled else 0
        self.compiled = True
        self.step, self.state = snapshot.step, snapshot.state
        self.losses = np.concatenate([self.losses, snapshot.losses])
        measured = self._measure_is_due() and self._measure()
        ends = self.step == self.last_step or self.stop.requested()
        if measured or ends or time.monotonic() - self.saved_at >= self.options.save_every:
            self._save()
        if measured:
            self._write_timing()
            self._write_status("running")
        self.trained_since = time.monotonic()
        return Progress(self.step, float(snapshot.losses.mean()), self.row)

    def finish(self) -> None:
        self.save_if_needed()  # the stop may have been requested after `advance` checked
        if self.step == self.num_steps and not self._measure_is_due():
            self._write_status("done")
        else:
            self._write_status("interrupted" if self.stop.requested() else "stopped")
        self.finished = True

    def save_if_needed(self) -> None:
        if self.saved_step != self.step:
            self._save()

    def record_stopped(self) -> None:
        """Save, and record the state `stopped`, if the run ends for a reason outside it."""
        if not self.failed and not self.finished:
            with suppress(OSError, MemoryError):  # the newest checkpoint is kept, and others tell why it was left
                self.save_if_needed()
                self._write_status("stopped")

    def record_interrupted(self) -> None:
        self._write_status("interrupted")

    def _write_start(self) -> None:
        directory, restored = self.directory, self.restored
        directory.write_config(self.config)
        directory.write_metrics(self.metrics)
        directory.mend_timing()
        env = directory.read_env()
        changes = [Change(self.step, restored.changed)] if restored.changed else []
        starts = (*env.starts, this_start(self.step, self.identity))
        directory.write_env(Environment(starts, (*env.changes, *changes)))
        self._write_status("running")
        if restored.is_new or restored.changed:  # the checkpoint's copy of the configuration is the one that counts
            self._save()

    def _exit_allowed(self) -> AbstractContextManager[None]:
        """Let a signal end the process at once, if nothing has changed since the last checkpoint."""
        if self.saved_step != self.step:
            return nullcontext()
        return self.stop.exit_allowed(self.record_interrupted)

    def _measure_is_due(self) -> bool:
        due = self.step % self.every == 0 or self.step == self.num_steps
        return due and (self.row is None or self.row.step != self.step)

    def _measure(self) -> bool:
        """Measure, and add a row of metrics. If a signal comes first, the row is made when the run resumes."""
        started = time.monotonic()
        loss = float(np.mean(self.losses, dtype=np.float64)) if len(self.losses) else None
        parts: dict[str, Any] = {}
        with self._exit_allowed():
            for name, part in measure_parts(self.config, self.state.model, self.episodes):
                parts[name] = part
                if self.stop.requested():
                    return False
        self.row = MetricsRow(step=self.step, loss=loss, **parts)
        self.metrics += self.directory.append_metrics(self.row)
        self.losses = np.zeros(0, np.float32)
        self.seconds["measure"] += time.monotonic() - started
        return True

    def _save(self) -> None:
        started = time.monotonic()
        arrays = named_arrays(self.state) | {LOSSES: self.losses}
        texts = {CONFIG: write_toml(self.config), METRICS: self.metrics}
        save_checkpoint(self.directory.checkpoints, Checkpoint(self.step, arrays, texts, self.identity))
        self.saved_at, self.saved_step = time.monotonic(), self.step
        self.seconds["save"] += self.saved_at - started

    def _write_timing(self) -> None:
        steps, seconds, now = self.timed_steps, self.seconds["train"], time.process_time()
        rate = steps / seconds if steps and seconds else None
        row = TimingRow(
            step=self.step,
            seconds={phase: round(spent, 4) for phase, spent in self.seconds.items()},
            processor_seconds=round(now - self.timed_until, 4),
            steps_per_second=rate,
            episodes_per_second=None if rate is None else rate * self.config.optimizer.batch_size,
            peak_memory_bytes=peak_memory(),
        )
        self.directory.append_timing(row)
        self.seconds, self.timed_steps, self.timed_until = dict.fromkeys(PHASES, 0.0), 0, now

    def _write_status(self, state: RunState, error: str | None = None) -> None:
        self.directory.write_status(state, self.step, self.num_steps, error, self.config.model.label)

    def _progress(self) -> Progress:
        return Progress(self.step, None, self.row)
