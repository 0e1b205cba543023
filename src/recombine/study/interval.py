"""Statistics over seeds: confidence intervals, and which values may be averaged."""

from collections.abc import Iterable, Sequence
from functools import cache
from math import isfinite, sqrt
from statistics import fmean, stdev
from typing import NamedTuple

LEVEL = 0.95


class Interval(NamedTuple):
    low: float
    high: float


@cache
def t_quantile(count: int, level: float = LEVEL) -> float:
    """Student's t for the confidence interval of a mean of `count` numbers."""
    from scipy.special import stdtrit  # scipy.stats would take a second to import

    return float(stdtrit(count - 1, (1 + level) / 2))


def all_or_none(values: Iterable[float | None]) -> list[float]:
    """The values if all of them are finite numbers, otherwise an empty list.

    Every mean over seeds follows this rule: a mean that leaves out a diverged seed would flatter the model.
    """
    numbers = list(values)
    finite = [float(value) for value in numbers if value is not None and isfinite(value)]
    return finite if len(finite) == len(numbers) else []


def confidence_interval(values: Sequence[float], level: float = LEVEL) -> Interval | None:
    """The confidence interval of the mean, 95 % unless told, by Student's t. One value has none."""
    if len(values) < 2:
        return None
    mean, half = fmean(values), t_quantile(len(values), level) * stdev(values) / sqrt(len(values))
    return Interval(mean - half, mean + half)


def band(values: Sequence[float]) -> Interval | None:
    """The interval that figures and tables show around a mean: the confidence interval for three or more seeds, the
        range for two.

    (The confidence interval of two seeds extends 12.7 standard errors to either side: it would fill any figure.)
    """
    return Interval(min(values), max(values)) if len(values) == 2 else confidence_interval(values)
