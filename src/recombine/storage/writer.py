"""The one place that writes run directories: plain files, one writer at a time.

config.toml     the configuration, complete
metrics.jsonl   a row for each measurement, ordered by step; nothing in it depends on the clock
timing.jsonl    throughput, time per phase, memory
checkpoints/    the two newest (see `recombine.storage.checkpoint`)
env.json        what made the run: versions, threads, devices, commands
status.json     running, done, stopped, interrupted or failed; the step; the error
lock            held by the process that writes the run

When a run is done, `scorecard.json` or `selection.json` is measured and written beside these.
"""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from recombine.config.schema import Config
from recombine.config.toml import Tables, parse_toml, write_toml
from recombine.errors import InputError
from recombine.files import (
    NotAFile,
    append,
    check_name,
    make_directories,
    read_file,
    remove_unfinished,
    replace_file,
)
from recombine.record.codec import BadRecord, decode, encode, storable
from recombine.record.run_state import Environment, RunState, Status, TimingRow
from recombine.record.score import MetricsRow
from recombine.record.seal import seal
from recombine.record.sweep import Selection
from recombine.storage.locking import Writing, free_lock, remove_leftovers, replace_shared, take_lock
from recombine.storage.source import CHECKPOINTS, CONFIG, ENV, LOCK, METRICS, SCORECARD, SELECTION, STATUS, TIMING

if TYPE_CHECKING:
    from recombine.measure.scorecard import Scorecard

LARGEST = 1 << 28  # bytes, the limit of each of these files


class RunDirectory:
    """`with RunDirectory(path) as directory:` holds the lock, which the system frees however the process ends."""

    def __init__(self, path: Path):
        self._path = path
        self.process = os.getpid()
        self.lock: int | None = None

    @property
    def path(self) -> Path:
        """For the process that opened the directory. A child that is forked from it has no lock, and writes nothing."""
        if os.getpid() != self.process:
            expected = f"in use by process {self.process}, from which this one was forked; it must leave by os._exit"
            raise InputError("out", str(self._path), expected)
        return self._path

    @property
    def checkpoints(self) -> Path:
        return self.path / CHECKPOINTS

    def __enter__(self) -> "RunDirectory":
        check_run_path(self.path)
        self.lock = take_lock(self.path, LOCK)
        try:
            for name in (CONFIG, METRICS, TIMING, ENV, STATUS):
                remove_unfinished(self.path / name)
            for name in (SCORECARD, SELECTION):
                remove_leftovers(self.path / name)
            make_directories(self.checkpoints)  # after the lock file, by which a run directory is recognised
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.lock is not None:
            free_lock(self.lock)
            self.lock = None

    def read_config(self) -> Tables | None:
        """The tables in config.toml. None in a new directory."""
        text = self._read(CONFIG)
        return None if text is None else parse_toml(text, str(self.path / CONFIG))

    def write_config(self, config: Config) -> None:
        replace_file(self.path / CONFIG, write_toml(config).encode())

    def has_metrics(self) -> bool:
        return bool(self._read(METRICS))

    def write_metrics(self, text: str) -> None:
        """Reset the metrics to the text that a checkpoint holds."""
        if self._read(METRICS) != text:
            replace_file(self.path / METRICS, text.encode())

    def append_metrics(self, row: MetricsRow) -> str:
        """Add a row, and return its line."""
        line = f"{encode(storable(row))}\n"
        append(self.path / METRICS, line.encode())
        return line

    def append_timing(self, row: TimingRow) -> None:
        append(self.path / TIMING, f"{encode(row)}\n".encode())

    def mend_timing(self) -> None:
        """Remove a last line that a killed process left incomplete."""
        text = self._read(TIMING) or ""
        if text and not text.endswith("\n"):
            replace_file(self.path / TIMING, text[: text.rfind("\n") + 1].encode())

    def read_env(self) -> Environment:
        """The record of the run's starts; empty if the file is missing or damaged, because nothing depends on it."""
        try:
            return decode(self._read(ENV) or "{}", Environment)
        except (BadRecord, InputError):
            return Environment()

    def write_env(self, env: Environment) -> None:
        replace_file(self.path / ENV, f"{encode(env, indent=2)}\n".encode())

    def write_status(
        self, state: RunState, step: int, num_steps: int, error: str | None = None, model: str = ""
    ) -> None:
        status = Status(state, step, num_steps, os.getpid(), error, model)
        replace_file(self.path / STATUS, f"{encode(status, indent=2)}\n".encode())

    def _read(self, name: str) -> str | None:
        path = self.path / name
        if not path.exists() and not path.is_symlink():
            return None
        try:
            return read_file(path, LARGEST).decode(errors="replace")
        except NotAFile as error:
            raise InputError("out", str(self.path), f"not a run directory: {error}") from error


def write_scorecard(run: Path, card: "Scorecard", sources: str, writing: Writing = nullcontext) -> None:
    """Store a scorecard with the digest of the code that measured it."""
    replace_shared(run / SCORECARD, seal(card, sources), writing)


def write_selection(run: Path, selection: Selection, sources: str, writing: Writing = nullcontext) -> None:
    """Store the selection scores with the digest of the code that measured them."""
    replace_shared(run / SELECTION, seal(selection, sources), writing)


def check_run_path(path: Path) -> None:
    """Refuse a directory that cannot hold a run, before anything is created."""
    check_name("out", path)
    if path.exists() and not path.is_dir():
        raise InputError("out", str(path), "is a file; name a directory")
    if path.is_dir() and not _is_run(path) and any(path.iterdir()):
        raise InputError("out", str(path), "the directory has other files in it and is not a run; name a new one")
    parent = path
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise InputError("out", str(path), f"{str(parent)!r} is a file")
    if not os.access(parent, os.W_OK):
        raise InputError("out", str(path), f"the directory {str(parent)!r} cannot be written to")


def _is_run(path: Path) -> bool:
    """A copy of a run may lack the lock file, because some programs copy no lock files: its checkpoints are enough."""
    return (path / LOCK).exists() or any((path / CHECKPOINTS).glob("step-*"))
