"""Scores on the novel part: the part of a held-out task that only a model that recombines modules can predict."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from recombine.record.codec import Count, MaskName, Positive, Real, Record


class MaskNovel(Record, frozen=True):
    """The tasks of one mask: mean squares over contexts and queries. Several masks pool by their contexts."""

    contexts: Count
    variance: Positive
    """The mean square of the labels around each task's mean."""
    novel: Positive
    """The mean square of the labels' novel part."""
    predicted: Real
    """The mean product of the novel parts of prediction and truth."""
    novel_error: Positive
    """The mean square of the error's part outside the span."""
    error: Positive
    """The mean square of the whole error."""


class NovelScore(Record, frozen=True, kw_only=True):
    """The novel part of held-out tasks, and what a model predicts of it."""

    share: Positive
    """The novel part's share of the variance of held-out tasks."""
    slope: Real
    """The slope of the prediction's novel part on the truth's: 0 for a blend of trained tasks, 1 for the truth."""
    slope_error: Positive
    """The standard error over contexts."""
    r2: Real
    """1 − Σ (error of the novel part)² / Σ (novel part)²."""
    r2_error: Positive
    """The standard error over contexts."""
    span_error: Real
    """The error inside the span, as a share of the variance: 1 − R² is about span_error + share · (1 − r2)."""
    directions: Count
    """The number of directions of the span, besides the constant."""
    masks: dict[MaskName, MaskNovel]


class NovelScores(Record, frozen=True, omit_defaults=True):
    """Scores on held-out masks: with directions that explain 99.9 % of the trained tasks, and with a finer span."""

    ood: NovelScore
    finer: NovelScore | None = None
    """The score with directions that explain 99.99 %."""


class PooledNovel(NamedTuple):
    """The score of several masks together; the fields are those of `NovelScore`."""

    share: float
    slope: float
    r2: float
    span_error: float


def pool_novel(masks: Mapping[str, MaskNovel], chosen: Iterable[str]) -> PooledNovel | None:
    """None where none of the masks was measured, or where they have no novel part."""
    found = [masks[mask] for mask in chosen if mask in masks]

    def total(field: str) -> float:
        return sum(mask.contexts * getattr(mask, field) for mask in found)

    novel, variance, novel_error = total("novel"), total("variance"), total("novel_error")
    if not novel > 0:
        return None
    inside = total("error") - novel_error
    return PooledNovel(novel / variance, total("predicted") / novel, 1 - novel_error / novel, inside / variance)
