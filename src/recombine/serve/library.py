"""The runs under a directory, as they are now: found, looked at again when they change.

A run is known by its path below the directory. Whatever a client asks for is looked up among the runs that were found
here: no path is ever made of a request.
"""

import json
import os
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recombine.config_file import config_as_dict, differences
from recombine.errors import InputError
from recombine.experiment.rundir import CONFIG, LOCK, METRICS, STATUS
from recombine.experiment.sweep import LIST, read_list
from recombine.experiment.trained import run_config
from recombine.files import NotAFile, read_file
from recombine.report.collect import run_directories

DEPTH = 4
TAIL = 1 << 18  # bytes from the end of the metrics in which the last row is looked for
MOST_POINTS = 300  # of a curve
LARGEST_METRICS = 1 << 28
SPLITS = ("in_dist", "ood", "control", "control_modules")

Stamp = tuple[tuple[int, int, int], ...]


@dataclass
class Seen:
    """A run as it was when it was last looked at."""

    path: Path
    name: str
    """Its path below the directory."""
    stamp: Stamp = ()
    config: dict[str, Any] = field(default_factory=dict)
    shown: dict[str, Any] = field(default_factory=dict)
    """What the table shows."""


class Library:
    """All runs under `root`. `refresh` says which have changed since; all else answers from memory, or one file."""

    def __init__(self, root: Path):
        self.root = root.resolve()
        self.runs: dict[str, Seen] = {}
        self.curves: dict[str, tuple[Stamp, dict[str, Any]]] = {}

    def refresh(self) -> tuple[list[str], list[str]]:
        """The names of runs that are new or have changed, and of those that are gone."""
        found = {path.relative_to(self.root).as_posix() or ".": path for path in run_directories(self.root, DEPTH)}
        gone = [name for name in self.runs if name not in found]
        for name in gone:
            del self.runs[name]
            self.curves.pop(name, None)
        changed = []
        for name, path in found.items():
            seen = self.runs.get(name) or Seen(path, name)
            stamp = _stamp(path)
            if seen.stamp != stamp or (seen.shown.get("state") == "running" and not _is_alive(path)):
                before = seen.shown
                self.runs[name] = _look(path, name, stamp)
                if self.runs[name].shown != before:
                    changed.append(name)
        return changed, gone

    def table(self, names: Iterable[str] | None = None) -> list[dict[str, Any]]:
        return [self.runs[name].shown for name in (self.runs if names is None else names) if name in self.runs]

    def find(self, name: str) -> Seen:
        if name not in self.runs:
            raise InputError("run", name, "no such run here")
        return self.runs[name]

    def curve(self, name: str) -> dict[str, Any]:
        """A run's scores over its steps, thinned; empty where the metrics cannot be read."""
        seen = self.find(name)
        stamp, curve = self.curves.get(name, ((), {}))
        if stamp != seen.stamp or not curve:
            curve = _curve(seen.path / METRICS)
            self.curves[name] = (seen.stamp, curve)
        return curve

    def difference(self, one: str, other: str) -> dict[str, list[Any]]:
        """The fields in which two configurations differ."""
        found = differences(self.find(one).config, self.find(other).config)
        return {name: [_text(value) for value in pair] for name, pair in found.items()}

    def sweeps(self) -> list[dict[str, Any]]:
        """How far each sweep under the directory is."""
        return [
            {"name": path.parent.relative_to(self.root).as_posix() or ".", **self._progress(path.parent)}
            for path in sorted(_lists(self.root, DEPTH))
        ]

    def _progress(self, directory: Path) -> dict[str, Any]:
        try:
            names = [line["name"] for line in read_list(directory)]
        except InputError as error:
            return {"error": str(error)}
        below = directory.relative_to(self.root)
        states: dict[str, int] = {}
        best: tuple[float, str] | None = None
        for name in names:
            seen = self.runs.get((below / name).as_posix())
            state = seen.shown["state"] if seen else "waiting"
            states[state] = states.get(state, 0) + 1
            ood = seen.shown.get("ood") if seen and state == "done" else None
            if isinstance(ood, float) and (best is None or ood > best[0]):
                best = (ood, name)
        return {"runs": len(names), "states": states, "best": best}

    def studies(self) -> list[str]:
        """The directories that hold runs side by side, as `reproduce` leaves them."""
        return sorted({Path(name).parent.as_posix() for name in self.runs if name != "."})


def _lists(directory: Path, depth: int) -> Iterator[Path]:
    if (directory / LIST).is_file():
        yield directory / LIST
        return
    if not depth or (directory / CONFIG).is_file():
        return
    try:
        children = sorted(child for child in directory.iterdir() if child.is_dir() and not child.is_symlink())
    except OSError:
        return
    for child in children:
        if not child.name.startswith("."):
            yield from _lists(child, depth - 1)


def _stamp(path: Path) -> Stamp:
    """What changes when a run does."""
    found = []
    for name in (CONFIG, METRICS, STATUS):
        try:
            stat = (path / name).lstat()
        except OSError:
            found.append((0, 0, 0))
        else:
            found.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return tuple(found)


def _look(path: Path, name: str, stamp: Stamp) -> Seen:
    shown: dict[str, Any] = {"name": name, "state": "unreadable", "step": 0, "study": Path(name).parent.as_posix()}
    try:
        config = run_config(path)
    except InputError as error:
        return Seen(path, name, stamp, {}, shown | {"error": f"{CONFIG}: {error.expected}"})
    task = config.task
    shown |= {
        "model": config.model.label,
        "support": task.support.name,
        "seed": config.seed,
        "num_steps": config.optimizer.num_steps,
        "sizes": [task.input_dim, task.hidden_dim, task.num_modules, task.episode_length],
    }
    try:
        status = json.loads(read_file(path / STATUS, 1 << 20))
        state, step, error = str(status["state"]), int(status["step"]), status.get("error")
    except (NotAFile, ValueError, KeyError, TypeError):
        state, step, error = "unknown", 0, None
    if state == "running" and not _is_alive(path):
        state = "killed"
    row = last_row(path / METRICS)
    scores = {split: _number(row.get(split), "r2") for split in SPLITS}
    shown |= {"state": state, "step": max(step, row.get("step", 0)), "loss": _finite(row.get("loss")), **scores}
    if isinstance(error, str):
        shown["error"] = error
    return Seen(path, name, stamp, config_as_dict(config), shown)


def _is_alive(path: Path) -> bool:
    """Whether the process that holds a run's lock is there, as far as this machine can tell."""
    try:
        words = read_file(path / LOCK, 1 << 12).decode(errors="replace").split()
    except NotAFile:
        return False
    here = len(words) == 4 and words[1].isdecimal() and words[3] == socket.gethostname()
    if not here or not Path("/proc/self").exists():
        return True
    return Path(f"/proc/{words[1]}").exists()


def last_row(path: Path) -> dict[str, Any]:
    """The last whole row of metrics; empty where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            lines = file.read(TAIL).split(b"\n")[:-1]
        row = json.loads(lines[-1]) if lines else {}
    except (OSError, ValueError):
        return {}
    return row if isinstance(row, dict) and isinstance(row.get("step"), int) else {}


def _curve(path: Path) -> dict[str, Any]:
    try:
        lines = read_file(path, LARGEST_METRICS).split(b"\n")[:-1]
    except NotAFile:
        lines = []
    every = -(-len(lines) // MOST_POINTS) or 1
    chosen = [line for i, line in enumerate(lines) if i % every == 0 or i == len(lines) - 1]
    rows = []
    for line in chosen:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            rows.append(row)
    probes = [row.get("probe") for row in rows]
    return {
        "steps": [row["step"] for row in rows],
        "loss": [_finite(row.get("loss")) for row in rows],
        **{split: [_number(row.get(split), "r2") for row in rows] for split in SPLITS},
        "probe": [_last(probe.get("ood")) if isinstance(probe, dict) else None for probe in probes],
    }


def _number(table: Any, key: str) -> float | None:
    return _finite(table.get(key)) if isinstance(table, dict) else None


def _last(values: Any) -> float | None:
    return _finite(values[-1]) if isinstance(values, list) and values else None


def _finite(value: Any) -> float | None:
    return (
        float(value) if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300 else None
    )


def _text(value: Any) -> str:
    return "–" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
