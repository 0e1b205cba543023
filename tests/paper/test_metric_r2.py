"""Appendix C.2 (app:metric): R², pooled."""

import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from sklearn.metrics import r2_score

from recombine.errors import InputError
from recombine.measure.r2 import score
from recombine.task.episode import Episode


def episodes(context_y: np.ndarray, query_y: np.ndarray) -> Episode:
    E, n = context_y.shape
    zeros = jnp.zeros((E, n, 1))
    return Episode(
        zeros, jnp.asarray(context_y), zeros[:, 0] if n else jnp.zeros((E, 1)), jnp.asarray(query_y),
        jnp.ones((E, 1)), jnp.zeros(E, int),
    )  # fmt: skip


RNG = np.random.default_rng(0)
CONTEXT_Y = RNG.normal(size=(50, 6)).astype(np.float32)
QUERY_Y = RNG.normal(size=50).astype(np.float32)
EPISODES = episodes(CONTEXT_Y, QUERY_Y)
PREDICTION = (QUERY_Y + RNG.normal(size=50)).astype(np.float32)


def test_by_the_definition() -> None:
    """1 − Σ(y_N − ŷ)² / Σ(y_N − ȳ)², term by term."""
    error = sum((float(y) - float(p)) ** 2 for y, p in zip(QUERY_Y, PREDICTION, strict=True))
    spread = sum((float(y) - np.mean(c, dtype=float)) ** 2 for y, c in zip(QUERY_Y, CONTEXT_Y, strict=True))
    variance = sum(np.mean((c - np.mean(c, dtype=float)) ** 2, dtype=float) for c in CONTEXT_Y)
    by_sequence = [
        1 - (float(y) - float(p)) ** 2 / np.var([*c, y], dtype=float)
        for y, p, c in zip(QUERY_Y, PREDICTION, CONTEXT_Y, strict=True)
    ]
    result = score(PREDICTION, EPISODES)
    np.testing.assert_allclose(
        msgspec.structs.astuple(result),
        [1 - error / spread, error / spread, 1 - error / variance, error / 50, np.mean(by_sequence)],
        rtol=1e-6,
    )


def test_equals_scikit_learns_where_every_context_has_the_queries_mean() -> None:
    context = np.full((50, 6), QUERY_Y.mean())
    expected = r2_score(QUERY_Y, PREDICTION)
    np.testing.assert_allclose(score(PREDICTION, episodes(context, QUERY_Y)).r2, expected, rtol=1e-5)


def test_truth_is_one_and_the_context_mean_zero() -> None:
    assert score(QUERY_Y, EPISODES).r2 == 1
    assert abs(score(CONTEXT_Y.mean(axis=1, dtype=float), EPISODES).r2) < 1e-12


def test_it_is_pooled_not_averaged() -> None:
    """One episode whose query label equals its context's mean does not dominate the score."""
    query = QUERY_Y.copy()
    query[0] = CONTEXT_Y[0].mean()
    assert -5 < score(PREDICTION, episodes(CONTEXT_Y, query)).r2 < 1


def test_undefined_scores_are_errors() -> None:
    with pytest.raises(InputError, match="R² is undefined"):
        score(np.zeros(4), episodes(np.ones((4, 3)), np.ones(4)))
    with pytest.raises(InputError, match="N ≥ 2"):
        score(np.zeros(4), episodes(np.ones((4, 0)), np.ones(4)))
    with pytest.raises(InputError, match="one number per episode"):
        score(np.zeros(3), EPISODES)


def test_a_single_context_pair_has_no_variance_but_an_r2() -> None:
    result = score(PREDICTION, episodes(CONTEXT_Y[:, :1], QUERY_Y))
    assert np.isfinite(result.r2)
    assert result.r2_variance is None


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_prediction_that_is_not_finite_is_an_error(value: float) -> None:
    prediction = PREDICTION.copy()
    prediction[[3, 7]] = value
    with pytest.raises(ArithmeticError, match="2 of 50 predictions are not finite"):
        score(prediction, EPISODES)
    labels = QUERY_Y.copy()
    labels[0] = value
    with pytest.raises(ArithmeticError, match="label is not finite"):
        score(PREDICTION, episodes(CONTEXT_Y, labels))
