"""The verdict on each claim: the effect, its interval over seeds, and whether it holds.

The claims and their criteria stand in `recombine.paper`. A claim is judged on finished runs alone, seed by seed: what
compares two models compares those of one seed, which saw the same teacher and are scored on the same episodes.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from math import sqrt
from typing import Any

import numpy as np
from scipy import stats

from recombine import paper
from recombine.measure.construction_error import construction_error
from recombine.report.collect import RunRecord, Study

HOLDS, DOES_NOT_HOLD, NOT_ENOUGH = "holds", "does not hold", "not enough data"
CONFIDENCE = 0.95


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
    parts = tuple(judge_part(statistic, STATISTICS[statistic.name](study)) for statistic in claim.statistics)
    states = {part.state for part in parts}
    state = next(state for state in (DOES_NOT_HOLD, NOT_ENOUGH, HOLDS) if state in states)
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
        half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(known) - 1) * np.std(known, ddof=1) / sqrt(len(known)))
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


def _note(claim: paper.Claim, parts: Sequence[Part], study: Study) -> str:
    if claim.number == 7:
        return "computed, not trained"
    seeds = max((len(part.effects) for part in parts), default=0)
    unfinished = sum(not run.finished for run in study.runs)
    notes = [f"{seeds} seed{'' if seeds == 1 else 's'}", f"{study.runs[0].num_steps:,} steps"]
    if seeds == 1:
        notes.append("no interval")
    if unfinished:
        notes.append(f"{unfinished} run{'' if unfinished == 1 else 's'} unfinished")
    return ", ".join(notes)


def relative(run: RunRecord, split: str) -> float | None:
    """The final R² between ridge (0) and the oracle (1) on the same episodes."""
    row = run.rows[-1]
    if split not in row or run.references is None:
        return None
    ridge, oracle = (run.references[name][split]["r2"] for name in ("ridge", "oracle"))
    return (row[split]["r2"] - ridge) / (oracle - ridge)


Of = Callable[[RunRecord], float | None]


def per_seed(study: Study, *wanted: tuple[str, str, Of], combine: Callable[..., float]) -> list[float]:
    """For each seed that has a finished run of every wanted (model, support): what they make together."""
    effects = []
    for seed in study.seeds:
        values = []
        for model, support, of in wanted:
            runs = [r for r in study.runs if (r.model, r.support, r.seed) == (model, support, seed) and r.finished]
            values.append(of(runs[0]) if runs else None)
        if None not in values:
            effects.append(combine(*values))
    return effects


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


@cache
def _construction_error() -> float:
    sizes = (paper.NUM_MODULES, paper.INPUT_DIM, paper.HIDDEN_DIM, 1)
    error = construction_error(0, *sizes, trials=100, dtype="float32")
    return error.max_abs_error / error.max_abs_output


STATISTICS: dict[str, Callable[[Study], list[float]]] = {
    "transformer_in_dist": lambda study: per_seed(study, (T, MAIN, _in_dist), combine=_same),
    "loss_ratio": lambda study: per_seed(study, (T, MAIN, _loss), (H, MAIN, _loss), combine=lambda t, h: t / h),
    "transformer_drop": lambda study: per_seed(study, (T, MAIN, _in_dist), (T, MAIN, _ood), combine=_minus),
    "hypertransformer_ood": lambda study: per_seed(study, (H, MAIN, _ood), combine=_same),
    "ood_gap": lambda study: per_seed(study, (H, MAIN, _ood), (T, MAIN, _ood), combine=_minus),
    "transformer_probe": lambda study: per_seed(study, (T, MAIN, _probe), combine=_same),
    "hypertransformer_probe": lambda study: per_seed(study, (H, MAIN, _probe), combine=_same),
    "hypertransformer_control": lambda study: per_seed(study, (H, MAIN, _control), combine=_same),
    "transformer_control": lambda study: per_seed(study, (T, MAIN, _control), combine=_same),
    "hypertransformer_connected": lambda study: per_seed(study, (H, CONNECTED, _ood), combine=_same),
    "hypertransformer_support": lambda study: per_seed(
        study, (H, CONNECTED, _ood), (H, DISCONNECTED, _ood), combine=_minus
    ),
    "transformer_support": lambda study: per_seed(study, (T, CONNECTED, _ood), (T, DISCONNECTED, _ood), combine=_minus),
    "construction_error": lambda study: [_construction_error()],
}
