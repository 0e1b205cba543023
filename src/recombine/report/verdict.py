"""The verdict on each claim: the effect, its interval over seeds, and whether it holds.

The claims and their criteria stand in `recombine.paper`. A claim is judged on finished runs alone, seed by seed: what
compares two models compares those of one seed, which saw the same teacher and are scored on the same episodes.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from recombine import paper
from recombine.measure.construction_error import construction_error
from recombine.report.collect import RunRecord, Study
from recombine.report.series import quantile

LEAST_STEPS = 1_000  # a run of fewer judges no claim
HOLDS, DOES_NOT_HOLD, NOT_ENOUGH = "holds", "does not hold", "not enough data"


@dataclass(frozen=True)
class Part:
    """One measured comparison of a claim."""

    statistic: str
    comparison: str
    threshold: float
    effects: tuple[float, ...]
    mean: float | None
    low: float | None
    high: float | None
    state: str


@dataclass(frozen=True)
class Verdict:
    """A claim, judged."""

    number: int
    claim: str
    panel: str
    parts: tuple[Part, ...]
    state: str
    note: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def judge(study: Study) -> tuple[Verdict, ...]:
    """The verdict on each of the paper's claims."""
    return tuple(_judge_claim(claim, study) for claim in paper.CLAIMS)


def _judge_claim(claim: paper.Claim, study: Study) -> Verdict:
    parts = tuple(judge_part(statistic, effects(study, STATISTICS[statistic.name])) for statistic in claim.statistics)
    states = {part.state for part in parts}
    state = next(state for state in (DOES_NOT_HOLD, NOT_ENOUGH, HOLDS) if state in states)
    if too_short(study) and claim.number != 7:
        state = NOT_ENOUGH
    return Verdict(claim.number, claim.sentence, claim.panel, parts, state, _note(claim, parts, study))


def judge_part(statistic: paper.Statistic, effects: Sequence[float]) -> Part:
    """With several seeds the whole interval must be on the threshold's side; with one, the effect itself is."""
    known = tuple(float(effect) for effect in effects)
    if not known:
        return Part(statistic.words, statistic.comparison, statistic.threshold, (), None, None, None, NOT_ENOUGH)
    mean = float(np.mean(known))
    low = high = None
    least = most = mean
    if len(known) > 1:
        half = quantile(len(known)) * float(np.std(known, ddof=1)) / sqrt(len(known))
        least = low = mean - half
        most = high = mean + half
    if statistic.comparison == ">=":
        holds, fails = least >= statistic.threshold, most < statistic.threshold
    elif statistic.comparison == "within":
        holds = -statistic.threshold <= least and most <= statistic.threshold
        fails = most < -statistic.threshold or least > statistic.threshold
    else:
        holds, fails = most <= statistic.threshold, least > statistic.threshold
    state = HOLDS if holds else DOES_NOT_HOLD if fails else NOT_ENOUGH
    return Part(statistic.words, statistic.comparison, statistic.threshold, known, mean, low, high, state)


def too_short(study: Study) -> bool:
    """Whether the runs are only there to see that everything runs."""
    return study.runs[0].num_steps < LEAST_STEPS


def _note(claim: paper.Claim, parts: Sequence[Part], study: Study) -> str:
    if claim.number == 7:
        return "computed, not trained"
    fewest, seeds = (least_or_most((len(part.effects) for part in parts), default=0) for least_or_most in (min, max))
    unfinished = sum(not run.finished for run in study.runs)
    counted = f"{seeds} seed{'' if seeds == 1 else 's'}" if fewest in (0, seeds) else f"{fewest} to {seeds} seeds"
    notes = [counted, f"{study.runs[0].num_steps:,} steps"]
    if too_short(study):
        notes.append(f"too short to judge by (fewer than {LEAST_STEPS:,})")
    if 1 in (fewest, seeds):
        notes.append("no interval" if seeds == 1 else "no interval where there is one seed")
    if unfinished:
        notes.append(f"{unfinished} run{'' if unfinished == 1 else 's'} unfinished")
    if any(not part.effects for part in parts):
        notes += _missing(study, [STATISTICS[statistic.name] for statistic in claim.statistics])
    return ", ".join(notes)


def _missing(study: Study, recipes: Sequence["Recipe"]) -> list[str]:
    """What a claim cannot be judged without, and is not there."""
    found = []
    for model, support, of in dict.fromkeys(needed for recipe in recipes for needed in recipe.needs):
        runs = [run for run in study.runs if (run.model, run.support) == (model, support)]
        if not runs:
            found.append(f"no run of the {model} on {support}")
        elif not any(run.finished for run in runs):
            found.append(f"no finished run of the {model} on {support}")
        elif of in (_in_dist, _ood) and all(run.references is None for run in runs if run.finished):
            found.append(f"no references for {support}")
    return list(dict.fromkeys(found))


def relative(run: RunRecord, split: str) -> float | None:
    """The final R² between ridge (0) and the oracle (1) on the same episodes."""
    row = run.rows[-1]
    if split not in row or run.references is None:
        return None
    ridge, oracle = (run.references[name][split]["r2"] for name in ("ridge", "oracle"))
    return (row[split]["r2"] - ridge) / (oracle - ridge)


class Recipe(NamedTuple):
    """A statistic of a seed: what is read from the final row of each (model, support), and what they make together."""

    needs: tuple[tuple[str, str, Callable[[RunRecord], float | None]], ...]
    combine: Callable[..., float]


def effects(study: Study, recipe: Recipe) -> list[float]:
    """For each seed that has a finished run of everything that is needed; what needs no run is computed once."""
    if not recipe.needs:
        return [recipe.combine()]
    found = []
    for seed in study.seeds:
        values = []
        for model, support, of in recipe.needs:
            runs = [r for r in study.runs if (r.model, r.support, r.seed) == (model, support, seed) and r.finished]
            values.append(of(runs[0]) if runs else None)
        if None not in values:
            found.append(recipe.combine(*values))
    return found


T, H = "transformer", "hypertransformer"
MAIN, CONNECTED, DISCONNECTED = paper.DEFAULT_SUPPORT, "connected", "disconnected"


def _in_dist(run: RunRecord) -> float | None:
    return relative(run, "in_dist")


def _ood(run: RunRecord) -> float | None:
    return relative(run, "ood")


def _loss(run: RunRecord) -> float:
    return run.rows[-1]["in_dist"]["mse"]


def _control(run: RunRecord) -> float:
    return run.rows[-1]["control"]["r2"]


def _probe(run: RunRecord) -> float | None:
    probe = run.rows[-1].get("probe")
    return probe["ood"][-1] if probe and "ood" in probe else None


def _same(value: float) -> float:
    return value


def _minus(a: float, b: float) -> float:
    return a - b


def _over(a: float, b: float) -> float:
    return a / b


@cache
def _construction_error() -> float:
    sizes = (paper.NUM_MODULES, paper.INPUT_DIM, paper.HIDDEN_DIM, 1)
    error = construction_error(0, *sizes, trials=100, dtype="float32")
    return error.max_abs_error / error.max_abs_output


STATISTICS: dict[str, Recipe] = {
    "transformer_in_dist": Recipe(((T, MAIN, _in_dist),), _same),
    "loss_ratio": Recipe(((T, MAIN, _loss), (H, MAIN, _loss)), _over),
    "transformer_drop": Recipe(((T, MAIN, _in_dist), (T, MAIN, _ood)), _minus),
    "hypertransformer_ood": Recipe(((H, MAIN, _ood),), _same),
    "ood_gap": Recipe(((H, MAIN, _ood), (T, MAIN, _ood)), _minus),
    "transformer_probe": Recipe(((T, MAIN, _probe),), _same),
    "hypertransformer_probe": Recipe(((H, MAIN, _probe),), _same),
    "hypertransformer_control": Recipe(((H, MAIN, _control),), _same),
    "transformer_control": Recipe(((T, MAIN, _control),), _same),
    "hypertransformer_connected": Recipe(((H, CONNECTED, _ood),), _same),
    "hypertransformer_support": Recipe(((H, CONNECTED, _ood), (H, DISCONNECTED, _ood)), _minus),
    "transformer_support": Recipe(((T, CONNECTED, _ood), (T, DISCONNECTED, _ood)), _minus),
    "construction_error": Recipe((), _construction_error),
}
