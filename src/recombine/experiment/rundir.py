"""The run directory: plain files that can be read without Recombine, and one writer at a time.

config.toml     the configuration, complete
metrics.jsonl   a row for each measurement, ordered by step; nothing in it depends on the clock
timing.jsonl    throughput, time per phase, memory
checkpoints/    the two newest (see `recombine.train.checkpoint`)
env.json        what made the run: versions, threads, devices, commands
status.json     running, done, stopped, interrupted or failed; the step; the error
lock            held by the process that writes the run
"""

import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from recombine.config import Config
from recombine.config_file import parse_toml, stored_config, write_toml
from recombine.errors import InputError
from recombine.experiment.lock import take_lock
from recombine.files import (
    NotAFile,
    append,
    check_name,
    make_directories,
    read_file,
    remove_unfinished,
    replace_file,
)

CONFIG, METRICS, TIMING, ENV, STATUS, LOCK, CHECKPOINTS, WEIGHTS = (
    "config.toml",
    "metrics.jsonl",
    "timing.jsonl",
    "env.json",
    "status.json",
    "lock",
    "checkpoints",
    "model.safetensors",  # of a run that was exported with its parameters
)


class RunDirectory:
    """`with RunDirectory(path) as directory:` holds the lock, which the system frees however the process ends."""

    def __init__(self, path: Path):
        self.path = path
        self.checkpoints = path / CHECKPOINTS
        self.lock: int | None = None

    def __enter__(self) -> "RunDirectory":
        check_run_path(self.path)
        self.lock = take_lock(self.path, LOCK)
        try:
            for name in (CONFIG, METRICS, TIMING, ENV, STATUS):
                remove_unfinished(self.path / name)
            make_directories(self.checkpoints)  # after the lock, which is what tells a run's directory from another
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None

    def read_config(self) -> dict[str, Any] | None:
        """The tables in config.toml, or None in a new directory."""
        text = self._read(CONFIG)
        return None if text is None else parse_toml(text, str(self.path / CONFIG))

    def write_config(self, config: Config) -> None:
        replace_file(self.path / CONFIG, write_toml(config).encode())

    def read_metrics(self) -> str:
        return self._read(METRICS) or ""

    def write_metrics(self, text: str) -> None:
        """Put the metrics back to what they were at a checkpoint."""
        if self._read(METRICS) != text:
            replace_file(self.path / METRICS, text.encode())

    def append_metrics(self, row: Mapping[str, Any]) -> str:
        """Add a row, and return its line."""
        line = json.dumps(row, allow_nan=False) + "\n"
        append(self.path / METRICS, line.encode())
        return line

    def append_timing(self, row: Mapping[str, Any]) -> None:
        append(self.path / TIMING, (json.dumps(row) + "\n").encode())

    def mend_timing(self) -> None:
        """Drop a line that a killed process did not finish."""
        text = self._read(TIMING) or ""
        if text and not text.endswith("\n"):
            replace_file(self.path / TIMING, text[: text.rfind("\n") + 1].encode())

    def read_env(self) -> dict[str, Any]:
        try:
            env = json.loads(self._read(ENV) or "{}")
        except ValueError:
            return {}
        return env if isinstance(env, dict) else {}

    def write_env(self, env: Mapping[str, Any]) -> None:
        replace_file(self.path / ENV, (json.dumps(env, indent=2) + "\n").encode())

    def write_status(self, state: str, step: int, num_steps: int, error: str | None = None) -> None:
        status = {"state": state, "step": step, "num_steps": num_steps, "process": os.getpid()}
        if error is not None:
            status["error"] = error
        replace_file(self.path / STATUS, (json.dumps(status, indent=2) + "\n").encode())

    def _read(self, name: str) -> str | None:
        path = self.path / name
        if not path.exists() and not path.is_symlink():
            return None
        try:
            return read_file(path).decode(errors="replace")
        except NotAFile as error:
            raise InputError("out", str(self.path), f"not a run directory: {error}") from error


def run_config(path: Path) -> Config:
    """The configuration of a run directory."""
    if not (path / CONFIG).is_file():
        raise InputError("run", str(path), f"not a run directory: it has no {CONFIG}")
    try:
        text = read_file(path / CONFIG, 1 << 20).decode(errors="replace")
    except NotAFile as error:
        raise InputError("run", str(path), f"not a run directory: {error}") from error
    tables = parse_toml(text, str(path / CONFIG))
    try:
        return stored_config(tables)
    except InputError as error:
        raise InputError("run", str(path), f"its {CONFIG}: {error}") from error


def is_done(path: Path) -> bool:
    """Whether a run has been trained and measured to its end."""
    try:
        return json.loads(read_file(path / STATUS, 1 << 20))["state"] == "done"
    except (NotAFile, ValueError, KeyError, TypeError, RecursionError):
        return False


def has_parameters(path: Path) -> bool:
    """Whether a model can be made of it: it has a checkpoint, or was exported with its parameters."""
    with suppress(OSError):
        if stat.S_ISREG(os.lstat(path / WEIGHTS).st_mode):
            return True
    with suppress(OSError), os.scandir(path / CHECKPOINTS) as entries:
        return any(entry.name.startswith("step-") for entry in entries)
    return False


def last_row(path: Path) -> dict[str, Any]:
    """The newest of a run's metrics; nothing where there is none, or none that can be read."""
    try:
        row = json.loads(read_file(path / METRICS).decode(errors="replace").splitlines()[-1])
    except (OSError, ValueError, IndexError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def check_run_path(path: Path) -> None:
    """Refuse, before anything is made, a directory in which no run could live."""
    check_name("out", path)
    if path.exists() and not path.is_dir():
        raise InputError("out", str(path), "is a file; name a directory")
    if path.is_dir() and not (path / LOCK).exists() and any(path.iterdir()):
        raise InputError("out", str(path), "a directory with other things in it, and no run; name a new one")
    parent = path
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise InputError("out", str(path), f"{str(parent)!r} is a file")
    if not os.access(parent, os.W_OK):
        raise InputError("out", str(path), f"the directory {str(parent)!r} cannot be written to")
