"""One run's files, as the table shows them: whatever they hold, reading them does no harm."""

import hashlib
import json
import os
import socket
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from recombine.config_file import config_as_dict
from recombine.errors import InputError
from recombine.experiment.rundir import CONFIG, LOCK, METRICS, STATUS, has_parameters, run_config
from recombine.experiment.sweep import SELECTION
from recombine.files import read_end, read_file

TAIL = 1 << 18  # bytes from the end of the metrics in which the last row is looked for
LONGEST = 300  # characters of a text that a file gives
SPLITS = ("in_dist", "ood", "control", "control_modules")

# What a file can be: out of reach, no JSON, JSON of another kind, nested too deep, or beyond all numbers.
Damage = (OSError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError)

FileStamp = tuple[int, int, int]
Stamp = tuple[FileStamp, FileStamp, FileStamp, FileStamp]


@dataclass(frozen=True)
class Seen:
    """A run as it was when it was last looked at."""

    path: Path
    name: str
    """Its path below the directory."""
    stamp: Stamp
    config: dict[str, Any] = field(default_factory=dict)
    shown: dict[str, Any] = field(default_factory=dict)
    """What the table shows."""

    @property
    def selection(self) -> FileStamp:
        """Changes when what a sweep selects by does."""
        return self.stamp[3]

    @property
    def metrics(self) -> FileStamp:
        """Changes when the metrics do."""
        return self.stamp[1]


def run_stamp(path: str) -> Stamp | None:
    """What changes when a run does; None where there is no run."""
    config, metrics, status, selection = (
        _file_stamp(f"{path}/{name}") for name in (CONFIG, METRICS, STATUS, SELECTION)
    )
    is_run = any(config) or (any(metrics) and any(status))  # one that has lost its configuration is to be told of
    return (config, metrics, status, selection) if is_run else None


def _file_stamp(path: str) -> FileStamp:
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return 0, 0, 0
    return found.st_ino, found.st_size, found.st_mtime_ns


def look(path: Path, name: str, stamp: Stamp, before: Seen | None = None) -> Seen:
    """A run as its files tell it now. What stands in a configuration is taken from `before` where that is the same."""
    try:
        return _look(path, name, stamp, before)
    except Exception as error:  # whatever it is, the other runs are to be shown all the same
        return Seen(path, name, stamp, {}, _unreadable(name, type(error).__name__))


def _unreadable(name: str, why: str) -> dict[str, Any]:
    study = Path(name).parent.as_posix()
    return {"name": name, "state": "unreadable", "step": 0, "study": study, "error": why[:LONGEST]}


def _look(path: Path, name: str, stamp: Stamp, before: Seen | None) -> Seen:
    if before is None or before.stamp[0] != stamp[0]:
        before = _look_at_config(path, name, stamp)
    if not before.config:
        return replace(before, stamp=stamp)
    try:
        status = json.loads(read_file(path / STATUS, 1 << 20))
        state, step, error = str(status["state"])[:LONGEST], int(status["step"]), status.get("error")
    except Damage:
        state, step, error = "unknown", 0, f"{STATUS} cannot be read"
    if state == "running" and not is_alive(path):
        state = "killed"
    row = last_row(path / METRICS)
    if not row and stamp[1][1] and not error:
        error = f"{METRICS} has no row that can be read"
    shown = before.shown | {
        "state": state,
        "step": max(step, row.get("step", 0)),
        "measured": row.get("step"),
        "loss": finite(row.get("loss")),
        **{split: number_in(row.get(split), "r2") for split in SPLITS},
        "playable": has_parameters(path),
        "error": error[:LONGEST] if isinstance(error, str) else None,
    }
    return replace(before, stamp=stamp, shown=shown)


def _look_at_config(path: Path, name: str, stamp: Stamp) -> Seen:
    try:
        config = run_config(path)
    except Exception as error:  # anything can stand in a file
        why = error.expected if isinstance(error, InputError) else type(error).__name__
        return Seen(path, name, stamp, {}, _unreadable(name, f"{CONFIG}: {why}"))
    task, tables = config.task, config_as_dict(config)
    shown = {
        "name": name,
        "study": Path(name).parent.as_posix(),
        "model": config.model.label,
        "support": task.support.name,
        "seed": config.seed,
        "num_steps": config.optimizer.num_steps,
        "configuration": _digest(tables | {"seed": None}),
        "sizes": [task.input_dim, task.hidden_dim, task.num_modules, task.episode_length],
    }
    return Seen(path, name, stamp, tables, shown)


def _digest(config: dict[str, Any]) -> str:
    """The same for runs that differ in their seed alone."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:12]


def is_alive(path: Path) -> bool:
    """Whether the process that holds a run's lock is there, as far as this machine can tell."""
    try:
        words = read_file(path / LOCK, 1 << 12).decode(errors="replace").split()
    except OSError:
        return False
    here = len(words) == 4 and words[1].isdecimal() and words[3] == socket.gethostname()
    if not here or not Path("/proc/self").exists():
        return True
    return Path(f"/proc/{words[1]}").exists()


def last_row(path: Path) -> dict[str, Any]:
    """The last whole row of metrics; empty where there is none."""
    try:
        lines = read_end(path, TAIL).split(b"\n")[:-1]
        row = json.loads(lines[-1]) if lines else {}
    except Damage:
        return {}
    return row if is_row(row) else {}


def is_row(row: Any) -> bool:
    return isinstance(row, dict) and type(row.get("step")) is int and 0 <= row["step"] < 1 << 53


def number_in(table: Any, key: str) -> float | None:
    return finite(table.get(key)) if isinstance(table, dict) else None


def finite(value: Any) -> float | None:
    if type(value) not in (int, float) or not abs(value) < 1e300:
        return None
    return float(f"{value:.6g}")
