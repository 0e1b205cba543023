"""The statistics that the claims are judged by: how each is computed, for a seed, from the finished runs of a study."""

from collections.abc import Callable
from functools import cache
from statistics import fmean
from typing import Literal, NamedTuple

from recombine import paper
from recombine.claims import Statistic
from recombine.storage.reader import StoredRun
from recombine.study.collect import Study
from recombine.study.panel_d_masks import novel_outside_both, outside_both
from recombine.study.series import final_novel, reference_score


def relative(run: StoredRun, split: str) -> float | None:
    """The final R² between ridge (0) and the oracle (1) on the same episodes. None if the oracle is not above ridge."""
    r2 = run.last.r2(split) if run.last is not None else None
    ridge, oracle = (reference_score(run.references, name, split) for name in ("ridge", "oracle"))
    if r2 is None or ridge is None or oracle is None or oracle.r2 <= ridge.r2:
        return None
    return (r2 - ridge.r2) / (oracle.r2 - ridge.r2)


class Recipe(NamedTuple):
    """How a statistic is computed for a seed: a value from the final row of each (model, support), and a function of
    these values."""

    needs: tuple[tuple[str, str, Callable[[StoredRun], float | None]], ...]
    combine: Callable[..., float | None]
    """Returns None if the values do not determine a number."""


def effects(study: Study, recipe: Recipe) -> list[float]:
    """The effect for each seed that has all needed runs finished. A statistic that needs no run is computed once."""
    found: list[float | None] = [] if recipe.needs else [recipe.combine()]
    for seed in study.seeds if recipe.needs else ():
        values = []
        for model, support, of in recipe.needs:
            runs = [r for r in study.runs if (r.model, r.support, r.seed) == (model, support, seed) and r.finished]
            values.append(of(runs[0]) if runs else None)
        if None not in values:
            found.append(recipe.combine(*values))
    return [effect for effect in found if effect is not None]


T, H = "transformer", "hypertransformer"
MAIN, CONNECTED, DISCONNECTED = paper.DEFAULT_SUPPORT, "connected", "disconnected"


def _in_dist(run: StoredRun) -> float | None:
    return relative(run, "in_dist")


def _ood(run: StoredRun) -> float | None:
    return relative(run, "ood")


RELATIVE = (_in_dist, _ood)
"""The values that need references."""


def _loss(run: StoredRun) -> float | None:
    """The final loss. None if it is 0, which no training reaches: losses are compared by their ratio."""
    return (run.last.in_dist.mse or None) if run.last is not None else None


def _ood_r2(run: StoredRun) -> float | None:
    return None if run.last is None else run.last.r2("ood")


def _outside(run: StoredRun) -> float | None:
    return None if run.last is None else outside_both(run.last.ood)


def _novel(run: StoredRun) -> float | None:
    found = final_novel(run)
    return None if found is None else found.r2


def _novel_outside(run: StoredRun) -> float | None:
    found = novel_outside_both(final_novel(run))
    return None if found is None else found.r2


def _control(run: StoredRun) -> float | None:
    return None if run.last is None else run.last.control.r2


def _control_modules(run: StoredRun) -> float | None:
    return None if run.last is None else run.last.r2("control_modules")


def _probe(run: StoredRun) -> float | None:
    """R² of the probe of the last residual stream on held-out masks."""
    probe = None if run.last is None else run.last.probe
    return probe.ood[-1] if probe is not None and probe.ood else None


def _same(value: float) -> float:
    return value


def _minus(a: float, b: float) -> float:
    return a - b


def _over(a: float, b: float) -> float | None:
    return a / b if b else None


@cache
def _construction_error() -> float:
    from recombine.measure.construction_error import construction_error  # it imports JAX

    sizes = (paper.NUM_MODULES, paper.INPUT_DIM, paper.HIDDEN_DIM, 1)
    error = construction_error(0, *sizes, trials=100, dtype="float32")
    return error.max_abs_error / error.max_abs_output


STATISTICS: dict[str, Recipe] = {
    "transformer_in_dist": Recipe(((T, MAIN, _in_dist),), _same),
    "loss_ratio": Recipe(((T, MAIN, _loss), (H, MAIN, _loss)), _over),
    "transformer_drop": Recipe(((T, MAIN, _in_dist), (T, MAIN, _ood)), _minus),
    "hypertransformer_ood": Recipe(((H, MAIN, _ood),), _same),
    "ood_gap": Recipe(((H, MAIN, _ood), (T, MAIN, _ood)), _minus),
    "ood_gap_r2": Recipe(((H, MAIN, _ood_r2), (T, MAIN, _ood_r2)), _minus),
    "hypertransformer_novel": Recipe(((H, MAIN, _novel),), _same),
    "novel_gap": Recipe(((H, MAIN, _novel), (T, MAIN, _novel)), _minus),
    "transformer_probe": Recipe(((T, MAIN, _probe),), _same),
    "hypertransformer_probe": Recipe(((H, MAIN, _probe),), _same),
    "hypertransformer_control_modules": Recipe(((H, MAIN, _control_modules),), _same),
    "transformer_control_modules": Recipe(((T, MAIN, _control_modules),), _same),
    "hypertransformer_control": Recipe(((H, MAIN, _control),), _same),
    "transformer_control": Recipe(((T, MAIN, _control),), _same),
    "hypertransformer_connected": Recipe(((H, CONNECTED, _ood),), _same),
    "hypertransformer_outside": Recipe(((H, CONNECTED, _outside), (H, DISCONNECTED, _outside)), _minus),
    "transformer_outside": Recipe(((T, CONNECTED, _outside), (T, DISCONNECTED, _outside)), _minus),
    "hypertransformer_novel_connected_outside": Recipe(((H, CONNECTED, _novel_outside),), _same),
    "hypertransformer_novel_outside": Recipe(
        ((H, CONNECTED, _novel_outside), (H, DISCONNECTED, _novel_outside)), _minus
    ),
    "transformer_novel_outside": Recipe(((T, CONNECTED, _novel_outside), (T, DISCONNECTED, _novel_outside)), _minus),
    "hypertransformer_support": Recipe(((H, CONNECTED, _ood), (H, DISCONNECTED, _ood)), _minus),
    "transformer_support": Recipe(((T, CONNECTED, _ood), (T, DISCONNECTED, _ood)), _minus),
    "construction_error": Recipe((), _construction_error),
}


CURVES: dict[Callable[[StoredRun], float | None], str] = {
    _in_dist: "in_dist",
    _ood: "ood",
    _loss: "loss",
    _ood_r2: "ood",
    _outside: "ood",
    _novel: "novel",
    _novel_outside: "novel",
    _control: "control",
    _control_modules: "control_modules",
    _probe: "probe",
}
"""The quantity over training that ends in each value, or is nearest to it."""
NEAR = (_loss, _outside, _novel_outside)  # the curve is of the training loss, or of all held-out masks


class JudgedCurve(NamedTuple):
    """The curve that a statistic judges, and the value that its end has to reach."""

    metric: str
    model: str
    support: str
    sign: Literal["≥", "≤", "≈"]
    line: float | None
    """The criterion on the curve's own scale, a mean over seeds. None if it has no place there."""


def judged_curve(study: Study, statistic: Statistic) -> JudgedCurve | None:
    """The curve of a statistic's first value; for a drop, of the value after it. None for a construction.

    A difference `a − b ≥ t` is the line `b + t` for a; for `within`, it is b. A relative score is turned back into R².
    """
    recipe, comparison = STATISTICS[statistic.name], statistic.comparison
    if not recipe.needs:
        return None
    at = 1 if statistic.name == "transformer_drop" else 0
    model, support, of = recipe.needs[at]
    threshold = 0.0 if comparison == "within" else statistic.threshold
    lines = [] if of in NEAR else [_line(study, recipe, at, threshold, seed) for seed in study.seeds]
    known = [line for line in lines if line is not None]
    sign = "≈" if comparison == "within" else "≥" if (comparison == ">=") == (at == 0) else "≤"
    return JudgedCurve(CURVES[of], model, support, sign, fmean(known) if known else None)


def _line(study: Study, recipe: Recipe, at: int, threshold: float, seed: int) -> float | None:
    """The R² of one seed's run at which the statistic meets its threshold."""
    runs = [
        next((r for r in study.runs if (r.model, r.support, r.seed) == (model, support, seed) and r.finished), None)
        for model, support, _ in recipe.needs
    ]
    judged, of = runs[at], recipe.needs[at][2]
    if judged is None:
        return None
    value = threshold
    if recipe.combine is _minus:
        other, of_other = runs[1 - at], recipe.needs[1 - at][2]
        known = None if other is None else of_other(other)
        if known is None:
            return None
        value = known + threshold if at == 0 else known - threshold
    if of not in RELATIVE:
        return value
    ridge, oracle = (reference_score(judged.references, name, CURVES[of]) for name in ("ridge", "oracle"))
    return None if ridge is None or oracle is None else ridge.r2 + value * (oracle.r2 - ridge.r2)
