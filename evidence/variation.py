"""Tables of the factorial of teachers and seeds: what a seed changes."""

from collections.abc import Callable, Sequence
from statistics import fmean, variance

import numpy as np
from records import APART, H, T, apart, chosen, mask_r2, percent, sweep
from scipy.stats import f

from recombine.report.collect import RunRecord
from recombine.report.markdown import table
from recombine.report.numbers import fixed
from recombine.report.verdict import relative


def variation() -> str:
    """How much of the spread is the teacher's: a factorial of teachers and seeds, each with its own init and data."""
    scores: tuple[tuple[str, Callable[[RunRecord], float | None]], ...] = (
        ("R² in distribution", lambda run: run.rows[-1]["in_dist"]["r2"]),
        ("R² held out", lambda run: run.rows[-1]["ood"]["r2"]),
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


def share_interval(grid: Sequence[Sequence[float]], level: float = 0.95) -> tuple[float, float]:
    """Of the teachers' share, if all that varies is normal: exact, by the F-distribution of the ratio of variances."""
    groups, size = len(grid), len(grid[0])
    within = fmean(variance(row) for row in grid)
    ratio = size * variance([fmean(row) for row in grid]) / within
    ends = f.ppf([(1 + level) / 2, (1 - level) / 2], groups - 1, groups * (size - 1))
    signal = [max(0.0, (ratio / end - 1) / size) for end in ends]
    return signal[0] / (1 + signal[0]), signal[1] / (1 + signal[1])


def teachers() -> str:
    """The same runs, teacher by teacher."""
    runs = sweep("variation")
    rows = []
    for teacher in sorted({run.config["teacher_seed"] for run in runs}):
        both = [chosen(runs, model, teacher_seed=teacher) for model in (T, H)]
        rows.append((str(teacher), *apart(*both)))
    return table(("teacher", *APART), rows)


def teachers_masks() -> str:
    """Which held-out masks are hard: with four teachers, for either model."""
    runs = sweep("variation")
    rows, scores, within = [], [], []
    for teacher in sorted({run.config["teacher_seed"] for run in runs}):
        both = [chosen(runs, model, teacher_seed=teacher) for model in (T, H)]
        masks = list(both[0][0].rows[-1]["ood"]["masks"])
        rows += [(str(teacher), f"`{mask}`", *(mask_r2(some, mask) for some in both)) for mask in masks]
        means = np.array(
            [[fmean(run.rows[-1]["ood"]["masks"][mask]["r2"] for run in some) for some in both] for mask in masks]
        )
        scores.append(means)
        within.append(means - means.mean(axis=0))
    total, of_one = (fixed(np.corrcoef(np.concatenate(some).T)[0, 1]) for some in (scores, within))
    words = f"Correlation of the two models' means over these {len(rows)}: {total}; within teachers: {of_one}."
    return table(("teacher", "held-out mask", T, H), rows, left=2) + f"\n\n{words}"


def _grid(model: str, of: Callable[[RunRecord], float | None]) -> list[list[float]]:
    """A row for each teacher, an entry for each seed."""
    runs = [run for run in sweep("variation") if run.model == model]
    teachers = sorted({run.config["teacher_seed"] for run in runs})
    found = [[of(run) for run in runs if run.config["teacher_seed"] == teacher] for teacher in teachers]
    return [[value for value in row if value is not None] for row in found]


def components(grid: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Variance among the rows and within them: the estimates of a one-way analysis of variance, not below zero."""
    assert len({len(row) for row in grid}) == 1, "as many seeds of each teacher"
    within = fmean(variance(row) for row in grid)
    among = variance([fmean(row) for row in grid]) - within / len(grid[0])
    return max(among, 0.0), within
