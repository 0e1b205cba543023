"""Turns runs into the numbers of a figure: series, and their means and bands over seeds."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import isfinite
from statistics import fmean

from recombine.record.novel import NovelScore
from recombine.record.reference import References, ReferenceScores
from recombine.record.score import MetricsRow, Score
from recombine.storage.reader import StoredRun
from recombine.study.collect import Study
from recombine.study.interval import all_or_none, band
from recombine.study.wording import ordered_models

FIGURE_REFERENCES = {"ridge": "ridge", "fitted_network": "fitted network", "oracle": "oracle"}

X = int | str | None


@dataclass(frozen=True)
class Series:
    """The values of one run in one panel. `name` distinguishes several curves of a run, or names a reference."""

    run: int
    name: str
    x: tuple[X, ...]
    y: tuple[float | None, ...]


@dataclass(frozen=True)
class MeanPoint:
    """The mean over seeds at one x, and the band around it. There is no mean if one run's value is not finite: leaving
    that run out would flatter the model."""

    model: str
    name: str
    x: X
    mean: float | None
    low: float | None
    high: float | None
    seeds: int


def finite(value: float | None) -> float | None:
    """The value, or None if it is not finite and cannot be drawn."""
    return float(value) if value is not None and isfinite(value) else None


def over_training(study: Study, name: str, read: Callable[[MetricsRow], float | None]) -> list[Series]:
    """One series per run that has the value in at least one row."""
    found = []
    for i, run in enumerate(study.runs):
        rows = [(row.step, value) for row in run.rows if (value := read(row)) is not None]
        if rows:
            found.append(Series(i, name, tuple(step for step, _ in rows), tuple(finite(value) for _, value in rows)))
    return found


def reference_series(study: Study, split: str, read: Callable[[Score], float] = lambda score: score.r2) -> list[Series]:
    """The references' value on a split, one series per run and reference."""
    return [
        Series(i, label, (None,), (finite(read(score)),))
        for i, run in enumerate(study.runs)
        for name, label in FIGURE_REFERENCES.items()
        if (score := reference_score(run.references, name, split)) is not None
    ]


def reference_score(references: References | None, name: str, split: str) -> Score | None:
    known: ReferenceScores | None = (references or {}).get(name)
    return None if known is None else known.split(split)


def final_novel(run: StoredRun) -> NovelScore | None:
    """The novel part in a run's scorecard. The rows of metrics have it from fewer contexts, which suffices for a curve
    and not for a verdict."""
    found = None if run.scorecard is None else run.scorecard.novel
    return None if found is None else found.ood


def model_scores(runs: Iterable[StoredRun], model: str, splits: Iterable[str]) -> list[list[float]]:
    """For each split, the final R² of each of the model's runs; empty if one of them has none."""
    rows = [run.last for run in runs if run.model == model and run.last is not None]
    return [all_or_none(row.r2(split) for row in rows) for split in splits]


def reference_scores(runs: Iterable[StoredRun], name: str, splits: Iterable[str]) -> list[list[float]]:
    """For each split, a reference's R² for each seed (all models of a seed share it); empty if a seed has none."""
    by_seed: dict[int, References] = {}
    for run in runs:
        if run.references:
            by_seed.setdefault(run.seed, run.references)
    found = [[reference_score(one, name, split) for one in by_seed.values()] for split in splits]
    return [all_or_none(score and score.r2 for score in scores) for scores in found]


def novel_scores(runs: Iterable[StoredRun], model: str) -> list[float]:
    """R² on the novel part of each of the model's runs, or nothing if one was not measured."""
    found = [final_novel(run) for run in runs if run.model == model and run.last is not None]
    return all_or_none(score and score.r2 for score in found)


def reference_novel(runs: Iterable[StoredRun], name: str) -> list[float]:
    """A reference's R² on the novel part, once for each seed."""
    by_seed = {run.seed: run.references[name].novel for run in runs if run.references and name in run.references}
    return all_or_none(found and found.ood.r2 for found in by_seed.values())


def drawable(name: str) -> str:
    """A name that is safe in a chart: line separators and other unprintable characters break Vega's expressions."""
    return "".join(letter if letter.isprintable() else "�" for letter in name)


def models(study: Study) -> list[str]:
    return ordered_models(run.model for run in study.runs)


def supports(study: Study) -> list[str]:
    """The supports of a study. The first one is that of panels A to C: Connected+ if the study has it."""
    first = ["connected+", "connected", "disconnected"]
    present = {run.support for run in study.runs}
    others = sorted(present - set(first))
    return [name for name in first[:1] + others + first[1:] if name in present]


def summarise(study: Study, series: Iterable[Series], chosen: Callable[[StoredRun], bool]) -> list[MeanPoint]:
    """Mean and band over the chosen runs, for each model, name and x."""
    groups: dict[tuple[str, str, X], list[float | None]] = {}
    for one in series:
        run = study.runs[one.run]
        if chosen(run):
            for x, y in zip(one.x, one.y, strict=True):
                groups.setdefault((run.model, one.name, x), []).append(y)
    points = []
    for (model, name, x), values in groups.items():
        numbers = all_or_none(values)
        low, high = band(numbers) or (None, None)
        points.append(MeanPoint(model, name, x, fmean(numbers) if numbers else None, low, high, len(values)))
    order = {model: i for i, model in enumerate(models(study))}
    return sorted(points, key=lambda point: (order[point.model], point.x if isinstance(point.x, int) else 0))


@dataclass(frozen=True)
class ReferencePoint:
    """The mean of a reference over seeds, at one x."""

    name: str
    x: X
    value: float


def summarise_references(
    study: Study, series: Iterable[Series], chosen: Callable[[StoredRun], bool]
) -> list[ReferencePoint]:
    """The means of the references. All models of a seed and support share one value, which counts once."""
    groups: dict[tuple[str, X], dict[tuple[str, int], float | None]] = {}
    for one in series:
        run = study.runs[one.run]
        if chosen(run):
            for x, y in zip(one.x, one.y, strict=True):
                groups.setdefault((one.name, x), {}).setdefault((run.support, run.seed), y)
    means = {place: all_or_none(values.values()) for place, values in groups.items()}
    return [ReferencePoint(name, x, fmean(values)) for (name, x), values in means.items() if values]


def with_drawable_names(study: Study) -> Study:
    """The study with models and supports renamed so that charts can show them."""

    def clean(run: StoredRun) -> StoredRun:
        task = run.config.task
        support = replace(task.support, name=drawable(task.support.name))
        return replace(run, config=replace(run.config, task=replace(task, support=support)))

    return replace(study, runs=tuple(map(clean, study.runs)))
