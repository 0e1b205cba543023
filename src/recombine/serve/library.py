"""The library: all runs below a directory, read again when their files change.

A run is identified by its path below the directory. A run that a client names is looked up among the runs that were
found: no path is ever built from a request.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from recombine.config.toml import config_tables, differences
from recombine.errors import InputError
from recombine.record.codec import Record
from recombine.record.sweep import Selection
from recombine.serve.discover import Finder, FoundSweep, joined
from recombine.serve.run_detail import cell_text, flat
from recombine.serve.run_summary import FileStamp, RunSummary, SeenRun, Stamp, may_be_killed, read_summary
from recombine.storage.reader import is_alive, read_selection
from recombine.storage.source import DirectorySource
from recombine.storage.sweep_list import read_list
from recombine.storage.thinned_metrics import MOST_POINTS, CurvePoint, read_curve

IN_TABLE = ("seed", "model.kind", "task.support.")  # fields that have their own columns
MOST_POINTS_KEPT = 150_000  # points of all cached curves together


class SweepProgress(Record, frozen=True, kw_only=True, omit_defaults=True):
    """The progress of a sweep."""

    name: str
    runs: int = 0
    states: dict[str, int] | None = None
    best: tuple[float, str] | None = None
    """The mean score and the name of the best configuration, among those whose seeds are all done."""
    error: str | None = None


class Columns(Record, frozen=True):
    """The configuration columns of a study's table."""

    fields: tuple[str, ...]
    values: dict[str, tuple[str, ...]]
    """By run: the text of each field."""


class Changes(NamedTuple):
    """The names of the runs that are new or have changed, and of those that are gone."""

    changed: list[str]
    gone: list[str]


class Library:
    """All runs below `root`. `refresh` looks for changes; the other methods answer from memory, or read one file.

    One thread may refresh while others read, because the results are replaced as a whole.
    """

    def __init__(self, root: Path, chosen: Mapping[str, Path] | None = None):
        self.root = root.resolve()
        self.finder = Finder(self.root, chosen)
        self.runs: dict[str, SeenRun] = {}
        self.sweep_lists: dict[str, FoundSweep] = {}
        self.selection_scores: dict[str, tuple[Stamp, float | None]] = {}
        self.curves: OrderedDict[tuple[str, int], tuple[tuple[FileStamp, FileStamp], list[CurvePoint]]] = OrderedDict()
        self.points_kept = 0
        self.curve_lock = threading.Lock()

    def refresh(self) -> Changes:
        """Look for runs that are new, have changed, or are gone."""
        found = self.finder.find()
        runs, changed = {}, []
        for name, place in found.runs.items():
            seen = self.runs.get(name)
            if seen is None or seen.stamp != place.stamp or (may_be_killed(seen) and not is_alive(seen.source)):
                before, seen = seen, read_summary(place, name, seen)
                if before is None or before.summary != seen.summary or before.stamp.selection != seen.stamp.selection:
                    changed.append(name)
            runs[name] = seen
        gone = [name for name in self.runs if name not in runs]
        for name in gone:
            self.selection_scores.pop(name, None)
        self.runs, self.sweep_lists = runs, found.sweeps
        return Changes(changed, gone)

    def table(self, names: Iterable[str] | None = None) -> list[RunSummary]:
        """The summaries of these runs, or of all."""
        runs = self.runs
        return [runs[name].summary for name in (runs if names is None else names) if name in runs]

    def find(self, name: str) -> SeenRun:
        seen = self.runs.get(name)
        if seen is None:
            raise InputError("run", name, "there is no such run")
        return seen

    def curve(self, name: str, most: int = MOST_POINTS) -> list[CurvePoint]:
        """A run's scores over its steps, thinned; empty if the metrics cannot be read."""
        seen = self.find(name)
        with self.curve_lock:
            written = (seen.stamp.metrics, seen.stamp.status)  # rows count once checkpointed; then status is written
            stamp, points = self.curves.pop((name, most), (None, None))
            if points is None:
                self.points_kept += most
            if points is None or stamp != written:
                points = read_curve(seen.source, most) if _may_be_read(seen) else []
            self.curves[name, most] = (written, points)
            while self.points_kept > MOST_POINTS_KEPT:
                (_, kept), _ = self.curves.popitem(last=False)
                self.points_kept -= kept
            return points

    def difference(self, one: str, other: str) -> dict[str, tuple[str, str]]:
        """The fields in which two configurations differ, and their values as text."""
        tables = []
        for seen in (self.find(one), self.find(other)):
            if seen.config is None:
                raise InputError("run", seen.name, f"cannot be compared: {seen.summary.error}")
            tables.append(config_tables(seen.config))
        return {name: (_text(first), _text(second)) for name, (first, second) in differences(*tables).items()}

    def columns(self, study: str) -> Columns:
        """The fields in which the runs of a study differ, and each run's values.

        The model, the support and the seed are left out: the table has columns for them.
        """
        runs = [seen for seen in self.runs.values() if seen.summary.study == study]
        tables = {seen.name: flat(config_tables(seen.config)) for seen in runs if seen.config is not None}
        texts = {name: {field: cell_text(value) for field, value in table.items()} for name, table in tables.items()}
        found: dict[tuple[str, str | None], set[str]] = {}  # a field that follows from the model is no column
        of_model: dict[str | None, set[str]] = {}  # a field with its default value may be left out of a configuration
        for name, table in texts.items():
            of_model.setdefault(self.runs[name].summary.model, set()).update(table)
        for name, table in texts.items():
            model = self.runs[name].summary.model
            for field in of_model[model]:
                found.setdefault((field, model), set()).add(table.get(field, "–"))
        varied = [field for (field, _), some in found.items() if len(some) > 1 and not field.startswith(IN_TABLE)]
        fields = tuple(sorted(dict.fromkeys(varied)))
        return Columns(
            fields, {name: tuple(table.get(field, "–") for field in fields) for name, table in texts.items()}
        )

    def sweeps(self) -> list[SweepProgress]:
        """The progress of each sweep below the directory."""
        return [self._progress(name, sweep) for name, sweep in self.sweep_lists.items()]

    def _progress(self, name: str, sweep: FoundSweep) -> SweepProgress:
        try:
            lines = list(read_list(sweep.path, self.root))
        except (InputError, OSError) as error:
            return SweepProgress(name=name, error=str(error).replace(f"{self.root}/", ""))
        states: dict[str, int] = {}
        scores: dict[str, list[float | None]] = {}
        for line in lines:
            seen = self.runs.get(joined(sweep.directory, line.name))
            state = seen.summary.state if seen else "waiting"
            states[state] = states.get(state, 0) + 1
            score = self._selection_score(seen, line.num_steps) if seen and state == "done" else None
            scores.setdefault(line.configuration, []).append(score)
        # The same ranking as in `recombine sweep results`: by the mean over seeds, among configurations whose seeds are
        # all done.
        known = {name: [score for score in some if score is not None] for name, some in scores.items()}
        means = [(fmean(some), name) for name, some in known.items() if len(some) == len(scores[name])]
        return SweepProgress(name=name, runs=len(lines), states=states, best=max(means, default=None))

    def _selection_score(self, seen: SeenRun, step: int) -> float | None:
        """The score that a sweep selects by: R² on episodes for selection only, on held-out masks if there are any."""
        stamp, score = self.selection_scores.get(seen.name, (None, None))
        if stamp != seen.stamp:
            stored = _stored_selection(seen)
            found = (stored.select.ood or stored.select.in_dist) if stored and stored.step == step else None
            score = None if found is None else found.r2
            self.selection_scores[seen.name] = (seen.stamp, score)
        return score

    def studies(self) -> list[str]:
        """The directories that directly contain runs, such as those of `recombine reproduce`."""
        return sorted({seen.summary.study for seen in self.runs.values()})


def _may_be_read(seen: SeenRun) -> bool:
    """Whether the run's metrics may be read. In an archive they may be too large; such a run has no config here."""
    return seen.config is not None or isinstance(seen.source, DirectorySource)


def _stored_selection(seen: SeenRun) -> Selection | None:
    """The stored scores for selection. None if there are none, or if they are damaged."""
    try:
        found = read_selection(seen.source)
    except InputError:
        return None
    return None if found is None else found.value


def _text(value: object) -> str:
    return "–" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
