"""Judges the paper's claims: for each, the effect, its interval over seeds, and whether the claim holds.

`recombine.claims` defines the claims and their criteria. Only finished runs count. Models are compared seed by seed:
those of one seed saw the same teacher and are scored on the same episodes.
"""

from collections.abc import Callable, Sequence
from math import exp, log
from statistics import fmean
from typing import Literal

import msgspec

from recombine.claims import CLAIMS, Claim, Reading, Statistic
from recombine.record.codec import Record
from recombine.study.collect import Study
from recombine.study.explicit import trained_with_explicit_inference, with_explicit_inference
from recombine.study.interval import Interval, confidence_interval
from recombine.study.statistics import RELATIVE, STATISTICS, Recipe, effects

LEAST_STEPS = 1_000  # a run of fewer judges no claim
LEAST_SEEDS = 3  # fewer judge no claim
BOUND_LEVEL = 0.9  # of the interval whose end excludes larger effects: a test at 5 %
VerdictState = Literal["holds", "does not hold", "not enough data"]
HOLDS: VerdictState = "holds"
DOES_NOT_HOLD: VerdictState = "does not hold"
NOT_ENOUGH: VerdictState = "not enough data"


class Part(Record, frozen=True):
    """One measured comparison of a claim."""

    statistic: str
    comparison: Literal[">=", "<=", "within"]
    threshold: float
    effects: tuple[float, ...]
    """One effect per seed."""
    mean: float | None
    low: float | None
    high: float | None
    """The ends of the 95 % interval of the mean."""
    bound: float | None
    """The end of the 90 % interval nearest the claim: the upper end for >=, the lower for <=, and the larger in
    absolute value for `within`. Effects beyond it are excluded at 5 %."""
    met: bool | None
    """Whether the mean meets the criterion, however uncertain it is."""
    state: VerdictState


class JudgedReading(Record, frozen=True):
    """A claim, judged in one way."""

    name: str
    parts: tuple[Part, ...]
    state: VerdictState


class Verdict(Record, frozen=True):
    """A claim, judged by its first reading; the other readings stand beside it."""

    number: int
    claim: str
    panel: str
    reading: str
    parts: tuple[Part, ...]
    state: VerdictState
    beside: tuple[JudgedReading, ...]
    note: str
    explicit: tuple[JudgedReading, ...] = ()
    """The readings that come out otherwise if the hypertransformer infers its latent explicitly at test time."""
    trained_explicit: tuple[JudgedReading, ...] = ()
    """The same for the hypertransformer that is trained with explicit inference."""
    lean: str = ""
    """Where there are too few seeds for a verdict, what their mean says: '1 seed: leans no'."""

    @property
    def remark(self) -> str:
        """What the verdict rests on, in one line."""
        return ", ".join(filter(None, (self.lean, self.note)))

    @property
    def others(self) -> list[tuple[str, JudgedReading]]:
        """Every other way in which the claim is judged, with the words that introduce it."""
        return [
            *((f"by {one.name}", one) for one in self.beside),
            *((f"with explicit inference at test time, by {one.name}", one) for one in self.explicit),
            *((f"trained with explicit inference, by {one.name}", one) for one in self.trained_explicit),
        ]

    @property
    def measured(self) -> bool:
        """Whether any of its statistics has a value. Without the runs that a claim is about, none has."""
        parts = (*self.parts, *(part for _, other in self.others for part in other.parts))
        return any(part.effects for part in parts)


def judge(study: Study) -> tuple[Verdict, ...]:
    """The verdict on each of the paper's claims."""
    explicit = (with_explicit_inference(study), trained_with_explicit_inference(study))
    return tuple(_judge_claim(claim, study, explicit) for claim in CLAIMS)


def _judge_claim(claim: Claim, study: Study, explicit: Sequence[Study | None]) -> Verdict:
    first, *others = judged = tuple(_judge_reading(reading, study) for reading in claim.readings)
    lean = _lean(first, study)
    note = _note(claim, first, study)
    head = (claim.number, claim.sentence, claim.panel, first.name)
    changed = (
        tuple(again for reading in claim.readings if (again := _judge_reading(reading, other)) not in judged)
        if other is not None
        else ()
        for other in explicit
    )
    return Verdict(*head, first.parts, first.state, tuple(others), note, *changed, lean=lean)


def _judge_reading(reading: Reading, study: Study) -> JudgedReading:
    parts = []
    for statistic in reading.statistics:
        recipe = STATISTICS[statistic.name]
        trained = bool(recipe.needs)  # a construction is computed: no seed, no training
        part = judge_part(statistic, effects(study, recipe), LEAST_SEEDS if trained else 1)
        parts.append(msgspec.structs.replace(part, state=NOT_ENOUGH) if trained and too_short(study) else part)
    states = {part.state for part in parts}
    state = DOES_NOT_HOLD if DOES_NOT_HOLD in states else NOT_ENOUGH if NOT_ENOUGH in states else HOLDS
    return JudgedReading(reading.name, tuple(parts), state)


def judge_part(statistic: Statistic, effects: Sequence[float], least_seeds: int = LEAST_SEEDS) -> Part:
    """Holds: the 95 % interval is wholly on the threshold's side. Does not hold: the 90 % interval is wholly on the
    other side, which is a one-sided test at 5 %. Anything between, or fewer than `least_seeds`, is not enough data.

    `within` holds if the 90 % interval lies inside ±threshold (an equivalence test), and does not hold if it lies
    wholly outside.
    """
    comparison, threshold = statistic.comparison, statistic.threshold
    known = tuple(float(effect) for effect in effects)
    if not known:
        return Part(statistic.words, comparison, threshold, (), None, None, None, None, None, NOT_ENOUGH)
    to, back = (log, exp) if statistic.scale == "log" else (float, float)
    values = [to(effect) for effect in known]
    mean = back(fmean(values))
    wide, narrow = (_ends(confidence_interval(values, level), back) for level in (0.95, BOUND_LEVEL))
    low, high = wide or (mean, mean)
    least, most = narrow or (mean, mean)
    match comparison:
        case ">=":
            holds, fails, bound = low >= threshold, most < threshold, most
        case "<=":
            holds, fails, bound = high <= threshold, least > threshold, least
        case "within":
            bound = max(abs(least), abs(most))
            holds, fails = bound <= threshold, most < -threshold or least > threshold
    state = NOT_ENOUGH if len(known) < least_seeds else HOLDS if holds else DOES_NOT_HOLD if fails else NOT_ENOUGH
    met = {">=": mean >= threshold, "<=": mean <= threshold, "within": abs(mean) <= threshold}[comparison]
    ends = (None, None, None) if wide is None else (*wide, bound)
    return Part(statistic.words, comparison, threshold, known, mean, *ends, met, state)


def _ends(interval: Interval | None, back: Callable[[float], float]) -> tuple[float, float] | None:
    return None if interval is None else (back(interval.low), back(interval.high))


def too_short(study: Study) -> bool:
    """Whether the runs are too short to decide a claim: they only test that everything runs."""
    return study.runs[0].num_steps < LEAST_STEPS


def _note(claim: Claim, judged: JudgedReading, study: Study) -> str:
    if claim.number == 7:
        return "computed, not trained"
    parts, decided = judged.parts, judged.state != NOT_ENOUGH
    fewest, counted = _seeds(parts)
    unfinished = sum(not run.finished for run in study.runs)
    if decided and fewest < LEAST_SEEDS:
        failed = [len(part.effects) for part in parts if part.state == DOES_NOT_HOLD]
        counted = f"{len(failed)} of {len(parts)} criteria fail{'s' * (len(failed) == 1)}, with {min(failed)} seeds"
    notes = [*([] if _lean(judged, study) else [counted]), f"{study.runs[0].num_steps:,} steps"]
    if too_short(study):
        notes.append(f"too short to judge by (fewer than {LEAST_STEPS:,})")
    if fewest < LEAST_SEEDS and not decided:
        notes.append(f"a verdict needs {LEAST_SEEDS} seeds")
    if unfinished:
        notes.append(f"{unfinished} run{'' if unfinished == 1 else 's'} unfinished")
    if any(not part.effects for part in parts):
        notes += _missing(study, [STATISTICS[statistic.name] for statistic in claim.readings[0].statistics])
    return ", ".join(notes)


def _seeds(parts: Sequence[Part]) -> tuple[int, str]:
    """The fewest seeds of a criterion, and how many seeds all of them have, in words."""
    fewest, most = (least_or_most((len(part.effects) for part in parts), default=0) for least_or_most in (min, max))
    return fewest, f"{most} seed{'' if most == 1 else 's'}" if fewest in (0, most) else f"{fewest} to {most} seeds"


def _lean(judged: JudgedReading, study: Study) -> str:
    """Whether the mean meets the criterion, where there are too few seeds for a verdict."""
    fewest, counted = _seeds(judged.parts)
    if judged.state != NOT_ENOUGH or not 0 < fewest < LEAST_SEEDS or too_short(study):
        return ""
    return f"{counted}: leans {'yes' if all(part.met for part in judged.parts) else 'no'}"


def _missing(study: Study, recipes: Sequence[Recipe]) -> list[str]:
    """The runs and references that a claim needs and the study lacks."""
    found = []
    for model, support, of in dict.fromkeys(needed for recipe in recipes for needed in recipe.needs):
        runs = [run for run in study.runs if (run.model, run.support) == (model, support)]
        if not runs:
            found.append(f"no run of the {model} on {support}")
        elif not any(run.finished for run in runs):
            found.append(f"no finished run of the {model} on {support}")
        elif of in RELATIVE and all(run.references is None for run in runs if run.finished):
            found.append(f"no references for {support}")
        elif of in RELATIVE and all(of(run) is None for run in runs if run.finished):
            found.append(f"the oracle is not above ridge on {support}")
    return list(dict.fromkeys(found))
