"""R²: the quality of predicted query labels, relative to predicting the mean label of the context.

Paper: Appendix C.2 (app:metric), "OOD R²". The paper prints the ratio of the two errors without the "1 −", and says
that it is averaged. But per-episode ratios have no finite mean, because their denominators come close to 0. So the
sums are pooled over all episodes before they are divided.

A label with several outputs is a vector. Errors are pooled over its outputs too, and each output is compared with its
own mean in the context: R² = 1 − Σ ‖y − ŷ‖² / Σ ‖y − ȳ‖². The mean squared error is per output.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from recombine.errors import InputError
from recombine.record.score import MaskScore, Score
from recombine.support.masks import Mask, format_mask
from recombine.task.episode import Episode


def score(prediction: ArrayLike, episodes: Episode) -> Score:
    """The score of one prediction per episode, in float64 whatever the model's precision."""
    context_y = np.asarray(episodes.context_y, np.float64)
    query_y = np.asarray(episodes.query_y, np.float64)
    predicted = np.asarray(prediction, np.float64)
    if predicted.shape != query_y.shape:
        raise InputError("prediction", predicted.shape, f"one label per episode, shape {query_y.shape}")
    if not np.isfinite(predicted).all():
        count = int((~np.isfinite(predicted)).reshape(len(predicted), -1).any(axis=1).sum())
        raise ArithmeticError(f"{count} of {len(predicted)} predictions are not finite: the model has diverged")
    if not np.isfinite(query_y).all():
        raise ArithmeticError("a query label is not finite: the teacher's W(z) vanished")
    if context_y.shape[1] == 0:
        raise InputError("episode_length", 1, "R² needs at least one context pair, so N ≥ 2")
    error = np.sum((query_y - predicted) ** 2)
    spread = np.sum((query_y - context_y.mean(axis=1)) ** 2)
    variance = np.sum(context_y.var(axis=1))
    if spread == 0:
        raise InputError("episodes", len(query_y), "R² is undefined: every query label equals its context's mean")
    nmse = float(error / spread)
    r2_variance = float(1 - error / variance) if variance > 0 else None  # a single context pair has no variance
    r2_sequence = _r2_by_sequence(predicted, query_y, context_y)
    return Score(1 - nmse, nmse, r2_variance, float(error / query_y.size), r2_sequence)


def _r2_by_sequence(predicted: np.ndarray, query_y: np.ndarray, context_y: np.ndarray) -> float | None:
    """The mean of 1 − error / variance, with the variance of all N labels of each episode."""
    outputs = tuple(range(1, query_y.ndim))  # no axis where a label is a number
    error = np.sum((query_y - predicted) ** 2, axis=outputs)
    variance = np.sum(np.concatenate([context_y, query_y[:, None]], axis=1).var(axis=1), axis=outputs)
    return float(np.mean(1 - error / variance)) if (variance > 0).all() else None


def score_by_mask(prediction: ArrayLike, episodes: Episode, masks: Sequence[Mask]) -> dict[str, MaskScore]:
    """The score of each mask, {'110000': …}. `mask_index` points into `masks`; masks without episodes are left out."""
    predicted, query_y = np.asarray(prediction, np.float64), np.asarray(episodes.query_y, np.float64)
    mean = np.asarray(episodes.context_y, np.float64).mean(axis=1)
    index = np.asarray(episodes.mask_index)
    scores = {}
    for i, mask in enumerate(masks):
        here = index == i
        if here.any():
            mse, spread = np.mean((query_y - predicted)[here] ** 2), np.mean((query_y - mean)[here] ** 2)
            r2 = float(1 - mse / spread) if spread > 0 else None
            scores[format_mask(mask)] = MaskScore(int(here.sum()), r2, float(mse), float(spread))
    return scores


def explained(found: ArrayLike, truth: ArrayLike) -> float | None:
    """The explained share of the variance of the truth, pooled over outputs. None if the truth is constant."""
    f, t = np.asarray(found, np.float64), np.asarray(truth, np.float64)
    spread = np.sum((t - t.mean(axis=0)) ** 2)
    return float(1 - np.sum((t - f) ** 2) / spread) if spread > 0 else None
