"""Tables of the variation between seeds, from a factorial design of teachers and seeds."""

from collections.abc import Callable, Sequence
from statistics import fmean

import numpy as np
from records import APART, H, T, apart, chosen, final_masks, final_r2, mask_r2, sweep

from recombine.storage.reader import StoredRun
from recombine.study.statistics import relative
from recombine.study.wording import fixed, percent
from recombine.terminal.markdown import table


def variation() -> str:
    """The share of the variance that is due to the teacher, and to the seed (initial parameters and data)."""
    scores: tuple[tuple[str, Callable[[StoredRun], float | None]], ...] = (
        ("R² in distribution", lambda run: final_r2(run, "in_dist")),
        ("R² held out", lambda run: final_r2(run, "ood")),
        ("relative R² held out", lambda run: relative(run, "ood")),
    )
    grids = [(model, words, _grid(model, of)) for model in (T, H) for words, of in scores]
    one, other = (grid for _, words, grid in grids if words == "R² held out")
    less = [[y - x for x, y in zip(*rows, strict=True)] for rows in zip(one, other, strict=True)]
    rows = []
    for model, words, grid in (*grids, (f"{H} − {T}", "R² held out", less)):
        among, within = components(grid)
        values = [value for row in grid for value in row]
        fewer = [_share([row for row in grid if row is not left_out]) for left_out in grid]
        low, high = share_interval(grid)
        shares = (
            percent(_share(grid)),
            f"{percent(low)} to {percent(high)}",
            f"{percent(min(fewer))} to {percent(max(fewer))}",
        )
        between = f"{fixed(min(values))} to {fixed(max(values))}"
        rows.append((model, words, fixed(fmean(values)), between, fixed(among**0.5), fixed(within**0.5), *shares))
    head = (
        "model",
        "score",
        "mean",
        "range",
        "σ of teachers",
        "σ of init and data",
        "teachers' share",
        "95 % interval",
        "with any three of the four",
    )
    return table(head, rows, left=2)


def _share(grid: Sequence[Sequence[float]]) -> float:
    among, within = components(grid)
    return among / (among + within)


def share_interval(
    grid: Sequence[Sequence[float]], level: float = 0.95, draws: int = 100_000, seed: int = 0
) -> tuple[float, float]:
    """A generalised confidence interval of the teachers' share of the variance, if all effects are normal.

    Each sum of squares is its expected mean square times a χ² variable. Drawing that variable turns the observed sums
    into possible mean squares, and these into variance components. The same seeds are used for every teacher, so the
    share has three components, and no exact interval exists.
    """
    rng = np.random.default_rng(seed)
    teacher, seeds, rest = (square * freedom / rng.chisquare(freedom, draws) for square, freedom in _mean_squares(grid))
    among = np.maximum(teacher - rest, 0.0) / len(grid[0])
    within = np.maximum(seeds - rest, 0.0) / len(grid) + rest
    low, high = np.quantile(among / (among + within), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _teacher(run: StoredRun) -> int:
    return run.seed if run.config.teacher_seed is None else run.config.teacher_seed


def _teachers(runs: Sequence[StoredRun]) -> list[int]:
    return sorted({_teacher(run) for run in runs})


def teachers() -> str:
    """The runs of the factorial, teacher by teacher."""
    runs = sweep("variation")
    rows = []
    for teacher in _teachers(runs):
        both = [chosen(runs, model, teacher_seed=teacher) for model in (T, H)]
        rows.append((str(teacher), *apart(*both)))
    return table(("teacher", *APART), rows)


def teachers_masks() -> str:
    """R² of each held-out mask, for four teachers and both models: are the same masks hard?"""
    runs = sweep("variation")
    rows, scores, within = [], [], []
    for teacher in _teachers(runs):
        both = [chosen(runs, model, teacher_seed=teacher) for model in (T, H)]
        masks = list(final_masks(both[0][0]))
        rows += [(str(teacher), f"`{mask}`", *(mask_r2(some, mask) for some in both)) for mask in masks]
        means = np.array([[fmean(final_masks(run)[mask] for run in some) for some in both] for mask in masks])
        scores.append(means)
        within.append(means - means.mean(axis=0))
    total, of_one = (fixed(np.corrcoef(np.concatenate(some).T)[0, 1]) for some in (scores, within))
    words = f"The two models' means correlate at {total} over these {len(rows)} rows, and at {of_one} within teachers."
    return table(("teacher", "held-out mask", T, H), rows, left=2) + f"\n\n{words}"


def _grid(model: str, of: Callable[[StoredRun], float | None]) -> list[list[float]]:
    """A row for each teacher with an entry for each seed, in the same order in every row."""
    runs = [run for run in sweep("variation") if run.model == model]
    found: dict[int, dict[int, float]] = {}
    for run in runs:
        value = of(run)
        assert value is not None, run.path
        found.setdefault(_teacher(run), {})[run.seed] = value
    (seeds,) = {tuple(sorted(row)) for row in found.values()}
    return [[found[teacher][seed] for seed in seeds] for teacher in sorted(found)]


def components(grid: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The variance between teachers (the rows), at least 0, and the variance with one teacher, from a two-way analysis.

    The same seeds are used for every teacher, so the effect of a seed does not enter the differences between rows.
    """
    (teacher, _), (seeds, _), (rest, _) = _mean_squares(grid)
    return max(teacher - rest, 0.0) / len(grid[0]), (seeds - rest) / len(grid) + rest


def _mean_squares(grid: Sequence[Sequence[float]]) -> tuple[tuple[float, int], ...]:
    """The mean squares of the rows, of the columns and of the residuals, each with its degrees of freedom."""
    values = np.asarray(grid)
    rows, columns = values.shape
    by_row, by_column = values.mean(axis=1, keepdims=True), values.mean(axis=0)
    left = values - by_row - by_column + values.mean()
    freedom = (rows - 1) * (columns - 1)
    return (
        (float(columns * by_row.var(ddof=1)), rows - 1),
        (float(rows * by_column.var(ddof=1)), columns - 1),
        (float((left**2).sum() / freedom), freedom),
    )
