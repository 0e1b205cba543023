"""The final scores of a study, averaged over seeds, for tables in the terminal."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from recombine.record.reference import REFERENCE_NAMES, References
from recombine.record.score import MetricsRow
from recombine.storage.reader import StoredRun
from recombine.study.collect import Study
from recombine.study.interval import all_or_none
from recombine.study.series import (
    model_scores,
    models,
    novel_scores,
    reference_novel,
    reference_score,
    reference_scores,
    supports,
)
from recombine.support.split import EVAL_SPLITS


@dataclass(frozen=True)
class FinalScores:
    """One row of a table: R² by split and on the novel part, and the probe of the last residual stream on held-out
    masks."""

    r2: Mapping[str, float | None]
    probe: float | None = None
    novel: float | None = None
    seeds: int | None = None
    """The number of seeds that the means are over."""


@dataclass(frozen=True)
class ScoreTable:
    """Models and references on the same splits."""

    title: str
    models: Mapping[str, FinalScores]
    references: Mapping[str, FinalScores] = field(default_factory=dict)


def final_scores(study: Study) -> Iterator[ScoreTable]:
    """One table for each support."""
    for support in supports(study):
        runs = [run for run in study.runs if run.support == support and run.rows]
        if not runs:
            continue
        rows = {}
        for model in models(study):
            if any(run.model == model for run in runs):
                probes = [probe_of(run.last) for run in runs if run.model == model]
                means = _means(model_scores(runs, model, EVAL_SPLITS))
                rows[model] = FinalScores(means, _mean(probes), _mean(novel_scores(runs, model)), len(probes))
        references = {}
        if any(run.references for run in runs):
            for name in REFERENCE_NAMES:
                means = _means(reference_scores(runs, name, EVAL_SPLITS))
                if any(value is not None for value in means.values()):
                    references[name] = FinalScores(means, novel=_mean(reference_novel(runs, name)))
        yield ScoreTable(_title(support, runs), rows, references)


def row_scores(row: MetricsRow) -> FinalScores:
    """A single row of metrics as a row of a table."""
    novel = None if row.novel is None else row.novel.ood.r2
    return FinalScores({split: score.r2 for split, score in row.splits().items()}, probe_of(row), novel)


def references_of_run(references: References) -> dict[str, FinalScores]:
    """A single run's references as rows of a table."""
    found = {}
    for name in references:
        scores = {split: reference_score(references, name, split) for split in EVAL_SPLITS}
        r2 = {split: score.r2 for split, score in scores.items() if score is not None}
        novel = references[name].novel
        found[name] = FinalScores(r2, novel=None if novel is None else novel.ood.r2)
    return found


def probe_of(row: MetricsRow | None) -> float | None:
    """R² of the probe of the last residual stream (of the latent, if the model shows no stream) on held-out masks."""
    probe = None if row is None else row.probe
    if probe is None:
        return None
    if probe.ood:
        return probe.ood[-1]
    return None if probe.latent is None else probe.latent.ood


def steps_of(runs: Sequence[StoredRun], model: str) -> str:
    """The last measured step of a model's runs: '5,000 × 3' for three seeds, or a list if they differ."""
    last = sorted(run.rows[-1].step for run in runs if run.model == model and run.rows)
    if len(set(last)) == 1:
        return f"{last[0]:,} × {len(last)}"
    return ", ".join(f"{step:,}" for step in last)


def without_novel(head: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """A table of scores, without the column before the last where no row has a score on the novel part."""
    if any(row[-2] != "–" for row in rows):
        return head, rows
    return (*head[:-2], head[-1]), [(*row[:-2], row[-1]) for row in rows]


def _title(support: str, runs: list[StoredRun]) -> str:
    task, steps = runs[0].config.task, runs[0].num_steps
    seeds = sorted({run.seed for run in runs})
    measured = sorted({run.rows[-1].step for run in runs})
    so_far = f"{measured[0]:,}" + (f" to {measured[-1]:,}" if len(measured) > 1 else "")
    done = f"{steps:,} steps" if measured == [steps] else f"{so_far} of {steps:,} steps so far"
    shown = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
    return f"Trained on {support}, {done} ({task.described}, {shown})"


def _means(columns: Sequence[Sequence[float]]) -> dict[str, float | None]:
    return {split: _mean(column) for split, column in zip(EVAL_SPLITS, columns, strict=True)}


def _mean(values: Sequence[float | None]) -> float | None:
    known = all_or_none(values)
    return fmean(known) if known else None
