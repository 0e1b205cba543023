"""From runs to the numbers of a figure: series, their means and intervals over seeds."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import isfinite, sqrt
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from recombine.report.theme import ordered_models

if TYPE_CHECKING:
    from recombine.report.collect import RunRecord, Study

REFERENCES = {"ridge": "ridge", "fitted_network": "fitted network", "oracle": "oracle"}
LEVEL = 0.95


@dataclass(frozen=True)
class Series:
    """What one run has to show in one panel. `name` tells apart the curves of a run, or names a reference."""

    run: int
    name: str
    x: tuple[Any, ...]
    y: tuple[float | None, ...]


def finite(value: Any) -> float | None:
    """A number that can be drawn, or nothing: a diverged run has NaN and infinity."""
    return float(value) if isinstance(value, (int, float)) and isfinite(value) else None


def lookup(table: Any, *keys: Any) -> Any:
    """The value under the keys, or nothing where one of them is missing or null."""
    for key in keys:
        if not isinstance(table, Mapping) or key not in table:
            return None
        table = table[key]
    return table


def over_training(study: "Study", name: str, read: Callable[[Mapping[str, Any]], Any]) -> list[Series]:
    """One series per run that has the value in at least one row."""
    found = []
    for i, run in enumerate(study.runs):
        rows = [(row["step"], read(row)) for row in run.rows]
        rows = [(step, value) for step, value in rows if value is not None]
        if rows:
            found.append(Series(i, name, tuple(step for step, _ in rows), tuple(finite(value) for _, value in rows)))
    return found


def pooled_r2(masks: Mapping[str, Mapping[str, float]] | None, chosen: Iterable[str]) -> float | None:
    """R² over the episodes of the chosen masks together: 1 − Σ n·mse / Σ n·spread."""
    rows = [masks[mask] for mask in chosen if mask in masks] if masks else []
    spread = sum(row["episodes"] * row["spread"] for row in rows)
    return 1 - sum(row["episodes"] * row["mse"] for row in rows) / spread if rows and spread else None


def references(study: "Study", *keys: str) -> list[Series]:
    """The references' value under the keys (a split and "r2", say), one series per run and reference."""
    return [
        Series(i, label, (None,), (value,))
        for i, run in enumerate(study.runs)
        for name, label in REFERENCES.items()
        if (value := finite(lookup(run.references, name, *keys))) is not None
    ]


def model_scores(runs: Iterable["RunRecord"], model: str, splits: Iterable[str]) -> list[list[float]]:
    """For each split: the R² at the last snapshot of each of the model's runs that has it."""
    rows = [run.rows[-1] for run in runs if run.model == model and run.rows]
    return [[r2 for row in rows if (r2 := finite(lookup(row, split, "r2"))) is not None] for split in splits]


def reference_scores(runs: Iterable["RunRecord"], name: str, splits: Iterable[str]) -> list[list[float]]:
    """For each split: a reference's R², once for each seed, whose models share it."""
    by_seed: dict[int, Any] = {}
    for run in runs:
        if run.references:
            by_seed.setdefault(run.seed, run.references)
    known = by_seed.values()
    return [[r2 for one in known if (r2 := finite(lookup(one, name, split, "r2"))) is not None] for split in splits]


def drawable(study: "Study") -> "Study":
    """The study with names that a chart can show: line separators and the like stop Vega's expressions."""

    def clean(name: str) -> str:
        return "".join(letter if letter.isprintable() else "�" for letter in name)

    runs = (replace(run, model=clean(run.model), support=clean(run.support)) for run in study.runs)
    return replace(study, runs=tuple(runs))


def models(study: "Study") -> list[str]:
    return ordered_models(run.model for run in study.runs)


def supports(study: "Study") -> list[str]:
    """The supports of a study, the one of panels A to C first: Connected+, or else what there is."""
    first = ["connected+", "connected", "disconnected"]
    present = {run.support for run in study.runs}
    own = sorted(present - set(first))
    return [name for name in first[:1] + own + first[1:] if name in present]


@cache
def quantile(count: int) -> float:
    """Student's t for the 95 % interval of a mean of `count` numbers."""
    from scipy.special import stdtrit  # of scipy.stats, which takes a second to import, without the rest

    return float(stdtrit(count - 1, (1 + LEVEL) / 2))


def interval(values: list[float]) -> tuple[float | None, float | None]:
    """Nothing from one seed, the range of two, the 95 % interval of the mean of three or more."""
    if len(values) < 2:
        return None, None
    if len(values) == 2:
        return min(values), max(values)
    mean, half = fmean(values), quantile(len(values)) * stdev(values) / sqrt(len(values))
    return mean - half, mean + half


def summarise(study: "Study", series: Iterable[Series], chosen: Callable[["RunRecord"], bool]) -> list[dict[str, Any]]:
    """Mean and interval over the chosen runs, for each model, name and x.

    Where a run's value is not finite there is no mean: leaving that run out would flatter the model.
    """
    groups: dict[tuple[str, str, Any], list[float | None]] = {}
    for one in series:
        run = study.runs[one.run]
        if chosen(run):
            for x, y in zip(one.x, one.y, strict=True):
                groups.setdefault((run.model, one.name, x), []).append(y)
    rows = []
    for (model, name, x), values in groups.items():
        numbers = [value for value in values if value is not None]
        whole = len(numbers) == len(values)
        low, high = interval(numbers) if whole else (None, None)
        mean = fmean(numbers) if whole else None
        rows.append(
            {"model": model, "name": name, "x": x, "mean": mean, "low": low, "high": high, "seeds": len(values)}
        )
    order = {model: i for i, model in enumerate(models(study))}
    return sorted(rows, key=lambda row: (order[row["model"]], *((0, row["x"]) if _number(row["x"]) else (1, 0))))


def summarise_references(
    study: "Study", series: Iterable[Series], chosen: Callable[["RunRecord"], bool]
) -> list[dict[str, Any]]:
    """The references' means. The models of one seed and support share theirs, which counts once."""
    groups: dict[tuple[str, Any], dict[tuple[str, int], float]] = {}
    for one in series:
        run = study.runs[one.run]
        if chosen(run):
            for x, y in zip(one.x, one.y, strict=True):
                if y is not None:
                    groups.setdefault((one.name, x), {}).setdefault((run.support, run.seed), y)
    return [{"name": name, "x": x, "value": fmean(values.values())} for (name, x), values in groups.items()]


def _number(x: Any) -> bool:
    return isinstance(x, (int, float))
