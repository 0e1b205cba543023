"""The runs under a directory, as they are now: found, looked at again when they change.

A run is known by its path below the directory. Whatever a client asks for is looked up among the runs that were found
here: no path is ever made of a request.
"""

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from recombine.config.toml import config_tables, differences
from recombine.errors import InputError
from recombine.jobs.sweep import LIST, read_list
from recombine.record.codec import Record
from recombine.run.archive import SUFFIX
from recombine.run.curve import MOST_POINTS, Curve, CurvePoint
from recombine.run.reader import is_alive, read_selection
from recombine.run.source import CHECKPOINTS, DirectorySource, RunSource, find_runs
from recombine.serve.run_summary import (
    FileStamp,
    RunSummary,
    SeenRun,
    Stamp,
    file_stamp,
    is_running,
    look,
    run_stamp,
)

DEPTH = 4
MOST_KEPT = 150_000  # points of curves


class SweepProgress(Record, frozen=True, kw_only=True, omit_defaults=True):
    """How far a sweep is."""

    name: str
    runs: int = 0
    states: dict[str, int] | None = None
    best: tuple[float, str] | None = None
    """The best configuration all of whose seeds are done: its mean score, and its name."""
    error: str | None = None


class Library:
    """All runs under `root`. `refresh` says which have changed since; all else answers from memory, or one file.

    One thread may refresh while others ask: what was found is replaced as a whole.
    """

    def __init__(self, root: Path):
        self.root = root.resolve()
        self.runs: dict[str, SeenRun] = {}
        self.lists: dict[str, Path] = {}
        self.selected: dict[str, tuple[Stamp, float | None]] = {}
        self.curves: OrderedDict[tuple[str, int], tuple[FileStamp, Curve]] = OrderedDict()
        self.points = 0
        self.reading = threading.Lock()

    def refresh(self) -> tuple[list[str], list[str]]:
        """The names of runs that are new or have changed, and of those that are gone."""
        found = _find(str(self.root))
        runs, changed = {}, []
        for name, (source, stamp) in found.runs.items():
            seen = self.runs.get(name)
            if seen is None or seen.stamp != stamp or (is_running(seen) and not is_alive(seen.source)):
                before, seen = seen, look(source, name, stamp, seen)
                if before is None or before.summary != seen.summary or before.selection != seen.selection:
                    changed.append(name)
            runs[name] = seen
        gone = [name for name in self.runs if name not in runs]
        for name in gone:
            self.selected.pop(name, None)
        self.runs, self.lists = runs, found.lists
        return changed, gone

    def table(self, names: Iterable[str] | None = None) -> list[RunSummary]:
        runs = self.runs
        return [runs[name].summary for name in (runs if names is None else names) if name in runs]

    def find(self, name: str) -> SeenRun:
        seen = self.runs.get(name)
        if seen is None:
            raise InputError("run", name, "no such run here")
        return seen

    def curve(self, name: str, most: int = MOST_POINTS) -> list[CurvePoint]:
        """A run's scores over its steps, thinned; empty where the metrics cannot be read."""
        seen = self.find(name)
        with self.reading:
            metrics, curve = self.curves.pop((name, most), (None, None))
            if curve is None:
                curve = Curve(seen.source, most)
                self.points += most
            if metrics != seen.metrics:
                curve.read_on()
            self.curves[name, most] = (seen.metrics, curve)
            while self.points > MOST_KEPT:
                (_, kept), _ = self.curves.popitem(last=False)
                self.points -= kept
            return curve.points()

    def difference(self, one: str, other: str) -> dict[str, list[str]]:
        """The fields in which two configurations differ."""
        tables = []
        for seen in (self.find(one), self.find(other)):
            if seen.config is None:
                raise InputError("run", seen.name, f"cannot be compared: {seen.summary.error}")
            tables.append(config_tables(seen.config))
        found = differences(*tables)
        return {name: [_text(value) for value in pair] for name, pair in found.items()}

    def sweeps(self) -> list[SweepProgress]:
        """How far each sweep under the directory is."""
        return [self._progress(name, path) for name, path in self.lists.items()]

    def _progress(self, sweep: str, directory: Path) -> SweepProgress:
        try:
            lines = list(read_list(directory))
        except (InputError, OSError, RecursionError) as error:
            return SweepProgress(name=sweep, error=str(error).replace(f"{self.root}/", ""))
        states: dict[str, int] = {}
        scores: dict[str, list[float | None]] = {}
        for line in lines:
            seen = self.runs.get(line.name if sweep == "." else f"{sweep}/{line.name}")
            state = seen.summary.state if seen else "waiting"
            states[state] = states.get(state, 0) + 1
            score = self._selected(seen, line.num_steps) if seen and state == "done" else None
            scores.setdefault(line.configuration, []).append(score)
        # As `recombine sweep results` ranks: by the mean over seeds, of configurations all of whose seeds are done.
        known = {name: [score for score in some if score is not None] for name, some in scores.items()}
        means = [(fmean(some), name) for name, some in known.items() if len(some) == len(scores[name])]
        return SweepProgress(name=sweep, runs=len(lines), states=states, best=max(means, default=None))

    def _selected(self, seen: SeenRun, step: int) -> float | None:
        """What a sweep selects by: R² on episodes that nothing is reported on, of held-out masks if there are any."""
        stamp, score = self.selected.get(seen.name, (None, None))
        if stamp != seen.stamp:
            stored = read_selection(seen.source)
            found = (stored.select.ood or stored.select.in_dist) if stored and stored.step == step else None
            score = None if found is None else found.r2
            self.selected[seen.name] = (seen.stamp, score)
        return score

    def studies(self) -> list[str]:
        """The directories that hold runs side by side, as `reproduce` leaves them."""
        return sorted({seen.summary.study for seen in self.runs.values()})


@dataclass
class Found:
    """What is below a directory, by name: runs, and directories with a sweep's list."""

    runs: dict[str, tuple[RunSource, Stamp]] = field(default_factory=dict)
    lists: dict[str, Path] = field(default_factory=dict)


def _find(root: str) -> Found:
    """Once a second, for thousands of runs: four looks at files for each, and no more."""
    found = Found()
    _walk(root, ".", DEPTH, found)
    return found


def _walk(path: str, name: str, depth: int, found: Found) -> None:
    if stamp := run_stamp(path):
        found.runs[name] = (DirectorySource(Path(path)), stamp)
        return
    try:
        with os.scandir(path) as entries:
            inside = sorted(entries, key=lambda entry: entry.name)
    except OSError:  # taken away meanwhile, or not ours to read
        return
    for entry in inside:
        if entry.name == LIST and entry.is_file(follow_symlinks=False):
            found.lists[name] = Path(path)
        elif entry.name.endswith(SUFFIX) and entry.is_file(follow_symlinks=False):
            _add_archive(entry.path, name, found)
        elif (
            depth
            and entry.name != CHECKPOINTS
            and not entry.name.startswith(".")
            and entry.is_dir(follow_symlinks=False)
        ):
            # A name can be any bytes, and is shown, and asked for, as text.
            shown = os.fsencode(entry.name).decode(errors="backslashreplace")
            _walk(entry.path, shown if name == "." else f"{name}/{shown}", depth - 1, found)


def _add_archive(path: str, name: str, found: Found) -> None:
    """The runs of an archive are shown as if they were in the directory of the archive."""
    stamp = file_stamp(path)
    try:
        runs = list(find_runs(Path(path)))
    except (InputError, OSError):  # not an archive of runs
        return
    for source in runs:
        shown = source.name if name == "." else f"{name}/{source.name}"
        found.runs.setdefault(shown, (source, (stamp, stamp, stamp, stamp)))


def _text(value: Any) -> str:
    return "–" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
