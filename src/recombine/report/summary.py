"""The final scores of a study, averaged over seeds, for the terminal."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from recombine.report.collect import RunRecord, Study
from recombine.report.series import models, supports

Scores = dict[str, dict[str, Any]]


def final_scores(study: Study) -> Iterator[tuple[str, Scores, Scores]]:
    """For each support: a title, the models' last rows of metrics and the references' scores."""
    for support in supports(study):
        runs = [run for run in study.runs if run.support == support and run.rows]
        if not runs:
            continue
        means: Scores = {}
        for model in models(study):
            rows = [run.rows[-1] for run in runs if run.model == model]
            if rows:
                means[model] = _mean(rows)
        known = list({run.seed: run.references for run in runs if run.references}.values())  # its models share them
        references = _mean(known) if known else {}
        yield _title(support, runs), means, references


def _title(support: str, runs: list[RunRecord]) -> str:
    task, steps = runs[0].config["task"], runs[0].num_steps
    seeds = sorted({run.seed for run in runs})
    measured = sorted({run.rows[-1]["step"] for run in runs})
    so_far = f"{measured[0]:,}" + (f" to {measured[-1]:,}" if len(measured) > 1 else "")
    done = f"{steps:,} steps" if measured == [steps] else f"{so_far} of {steps:,} steps so far"
    sizes = f"N = {task['episode_length']}, d = {task['input_dim']}, h = {task['hidden_dim']}"
    return f"Trained on {support}, {done} ({sizes}, seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))})"


def _mean(values: list[Any]) -> Any:
    """The mean of tables of numbers, entry by entry, over those that have it."""
    first = values[0]
    if isinstance(first, dict):
        names = dict.fromkeys(name for value in values for name in value)
        return {name: _mean([value[name] for value in values if name in value]) for name in names}
    if isinstance(first, list):
        return [_mean(list(entries)) for entries in zip(*values, strict=False)]
    known = [value for value in values if isinstance(value, int | float)]
    return float(np.mean(known)) if known else None
