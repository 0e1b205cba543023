"""One run: trains a model, measures it and stores both, and goes on where it was left.

Everything a run needs to go on is in its newest checkpoint: the state, the losses since the last row of metrics, the
rows so far and the configuration. What was written after it is made again, bit for bit.
"""

import json
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recombine.checks import check_number, check_size
from recombine.config import Config
from recombine.config_file import write_toml
from recombine.errors import InputError
from recombine.experiment.evaluate import examination, measurements
from recombine.experiment.interrupt import StopRequest
from recombine.experiment.machine import environment, identity, peak_memory
from recombine.experiment.resume import last_step, newest_checkpoint, what_changed
from recombine.experiment.rundir import CONFIG, METRICS, RunDirectory
from recombine.experiment.trained import LOSSES
from recombine.model.weights import named_arrays, replace_arrays
from recombine.train.checkpoint import Checkpoint, save_checkpoint
from recombine.train.loop import Snapshot, check_devices, train
from recombine.train.step import State, config_tasks, init_state


@dataclass(frozen=True)
class RunOptions:
    """How a run is carried out. Nothing here changes its result, but for last bits: `devices` and `together` do."""

    devices: int = 1
    save_every: float = 60.0  # seconds
    stop_at: int | None = None
    resume_anyway: bool = False
    together: int = 1  # runs that are trained by one program

    def __post_init__(self) -> None:
        check_number("save_every", self.save_every, least=0.0)
        if self.stop_at is not None:
            check_size("stop_at", self.stop_at, least=0, most=2**31 - 1)


class Progress(NamedTuple):
    """Where a run is: the steps done, the mean loss of the last ones, and the newest row of metrics."""

    step: int
    loss: float | None
    row: dict[str, Any]


def run(
    config: Config,
    path: Path,
    options: RunOptions | None = None,
    request: StopRequest | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Generator[Progress, None, None]:
    """Start or continue the run in the directory, reporting progress; the last report has the final scores."""
    options = options or RunOptions()
    check_devices(config, options.devices)
    with RunDirectory(path) as directory:
        yield from Running(config, directory, options, request or StopRequest(), say).go()


class Running:
    """The state of a run while it goes on: what is in memory, and what is on disk already."""

    def __init__(
        self,
        config: Config,
        directory: RunDirectory,
        options: RunOptions,
        request: StopRequest,
        say: Callable[[str], None],
    ):
        self.config, self.directory, self.options, self.request, self.say = config, directory, options, request, say
        self.num_steps, self.devices = config.optimizer.num_steps, options.devices
        self.last = self.num_steps if options.stop_at is None else min(self.num_steps, options.stop_at)
        self.every = -(-self.num_steps // config.measure.snapshots)
        self.identity = identity(options.devices) | ({"together": options.together} if options.together > 1 else {})
        self.entered = False  # nothing has been written yet
        self.step = 0
        self.saved_step: int | None = None
        self.metrics = ""
        self.losses = np.zeros(0, np.float32)
        self.row: dict[str, Any] = {}
        self.seconds = {"start": 0.0, "compile": 0.0, "train": 0.0, "measure": 0.0, "save": 0.0}
        self.timed_steps = 0  # those of `seconds["train"]`
        self.compiled = False  # the first dispatch compiles
        self.failed = False

    def go(self) -> Iterator[Progress]:
        with self.answerable():
            yield from self.begin()
            snapshots = train(self.config, self.tasks, self.state, self.step, self.every, self.last, self.devices)
            with self._may_leave():  # the first dispatch compiles, which no flag of ours can stop
                first = list(islice(snapshots, 1))
            for snapshot in chain(first, snapshots):
                yield self.take(snapshot)
                if self.request.requested():
                    break
            self.end()

    @contextmanager
    def answerable(self) -> Iterator[None]:
        """However it ends, the directory says so."""
        try:
            with self.blamed():
                yield
        except GeneratorExit:
            self.leave()
            raise

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """An error inside is this run's. That whoever reads the progress has gone, is not."""
        try:
            yield
        except GeneratorExit:
            raise
        except BaseException as error:
            self.fail(error)
            raise

    def leave(self) -> None:
        """For reasons that are not this run's."""
        if self.entered and not self.failed:
            with suppress(OSError):
                self.keep()
                self._write_status("stopped")

    def fail(self, error: BaseException) -> None:
        self.failed = True
        if self.entered:
            with suppress(OSError):  # a full disk, for one: the first error is the one to report
                self._write_status("failed", str(error) or type(error).__name__)

    def begin(self) -> Iterator[Progress]:
        """Up to the first step that is to be trained."""
        started = time.monotonic()
        self.state = self._restore()
        yield self._progress()
        with self._may_leave():
            self.tasks = config_tasks(self.config)
            self.examination = examination(self.config, self.tasks.teacher)
        self.seconds["start"] = time.monotonic() - started
        if self._measure_is_due() and self._measure() and self.step > 0:
            self._save()
        yield self._progress()
        self.saved_at = self.since = time.monotonic()

    def take(self, snapshot: Snapshot, trained: float | None = None) -> Progress:
        """Measure and save what has been trained (by `trained`, or just now), where that is due."""
        seconds = (time.monotonic() if trained is None else trained) - self.since
        self.seconds["train" if self.compiled else "compile"] += seconds
        self.timed_steps += len(snapshot.losses) if self.compiled else 0
        self.compiled = True
        self.step, self.state = snapshot.step, snapshot.state
        self.losses = np.concatenate([self.losses, snapshot.losses])
        measured = self._measure_is_due() and self._measure()
        ends = self.step == self.last or self.request.requested()
        if measured or ends or time.monotonic() - self.saved_at >= self.options.save_every:
            self._save()
        if measured:
            self._write_timing()
            self._write_status("running")
        self.since = time.monotonic()
        return Progress(self.step, float(snapshot.losses.mean()), self.row)

    def keep(self) -> None:
        """Save, unless it is saved."""
        if self.saved_step != self.step:
            self._save()

    def interrupted(self) -> None:
        self._write_status("interrupted")

    def end(self) -> None:
        self.keep()  # asked to leave after `take` had looked
        if self.step == self.num_steps and not self._measure_is_due():
            self._write_status("done")
        else:
            self._write_status("interrupted" if self.request.requested() else "stopped")
        self.entered = False

    def _restore(self) -> State:
        """The state to go on from: that of the newest good checkpoint, or a fresh one in a new directory."""
        newest = newest_checkpoint(self.directory, self.say)
        changed = what_changed(self.directory, newest, self.config, self.identity)
        if changed and not self.options.resume_anyway:
            shown = "; ".join(f"{name}: {old} → {new}" for name, (old, new) in changed.items())
            raise InputError(
                "out", str(self.directory.path), f"made with other settings: {shown} (--resume-anyway goes on)"
            )
        state = init_state(self.config)
        if newest:
            arrays = dict(newest.arrays)
            self.losses = arrays.pop(LOSSES)
            state = replace_arrays(state, arrays, f"step {newest.step} of {self.directory.path}")
            self.step, self.metrics = newest.step, newest.texts[METRICS]
            self.saved_step = self.step
            self.row = json.loads(self.metrics.splitlines()[-1]) if self.metrics else {}
            if self.step < self.num_steps:
                self.say(f"going on from step {self.step}")
        self.entered = True
        self.directory.write_config(self.config)
        self.directory.write_metrics(self.metrics)
        self.directory.mend_timing()
        env = self.directory.read_env()
        starts = [*env.get("starts", []), {"step": self.step, "identity": self.identity, **environment()}]
        changes = env.get("changes", [])
        if changed:
            changes.append({"step": self.step, "fields": {name: list(pair) for name, pair in changed.items()}})
        self.directory.write_env({"starts": starts, "changes": changes})
        self.state = state
        self._write_status("running")
        if not newest:
            self._save()
        return state

    def _may_leave(self) -> AbstractContextManager[None]:
        """Where nothing has changed since the last checkpoint, a signal need not wait."""
        if self.saved_step != self.step:
            return nullcontext()
        return self.request.may_leave(self.interrupted)

    def _measure_is_due(self) -> bool:
        due = self.step % self.every == 0 or self.step == self.num_steps
        return due and last_step(self.metrics) != self.step

    def _measure(self) -> bool:
        """Add a row of metrics, unless a signal comes first: the row is then made when the run goes on."""
        started = time.monotonic()
        loss = float(np.mean(self.losses, dtype=np.float64)) if len(self.losses) else None
        row: dict[str, Any] = {"step": self.step, "loss": loss}
        with self._may_leave():
            for name, value in measurements(self.config, self.state.model, self.examination):
                row[name] = value
                if self.request.requested():
                    return False
        self.metrics += self.directory.append_metrics(row)
        self.losses, self.row = np.zeros(0, np.float32), row
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
        steps, seconds = self.timed_steps, self.seconds["train"]
        batch = self.config.optimizer.batch_size
        row: dict[str, Any] = {"step": self.step, "seconds": {k: round(v, 4) for k, v in self.seconds.items()}}
        if steps and seconds:
            row |= {"steps_per_second": steps / seconds, "episodes_per_second": steps * batch / seconds}
        self.directory.append_timing(row | {"peak_memory_bytes": peak_memory()})
        self.seconds, self.timed_steps = dict.fromkeys(self.seconds, 0.0), 0

    def _write_status(self, state: str, error: str | None = None) -> None:
        self.directory.write_status(state, self.step, self.num_steps, error)

    def _progress(self) -> Progress:
        return Progress(self.step, None, self.row)
