"""Ridge regression compared with scikit-learn and float64 linear algebra, on well and badly conditioned data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import Ridge as SklearnRidge

from recombine.measure.ridge import fit_ridge

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 6))
Y = RNG.normal(size=(40, 2))
DUPLICATED = np.column_stack([X, X[:, :2]])
CASES = {
    "plain": X,
    "fewer samples than features": X[:4],
    "rank deficient": DUPLICATED,
    "all zero": np.zeros_like(X),
    "a constant column": np.column_stack([X, np.full(40, 7.0)]),
    "badly scaled": X * np.array([1e-6, 1e-3, 1.0, 1e3, 1e5, 1e6]),
    "far from the origin": X + 1e4,
    "one sample": X[:1],
}


@pytest.mark.parametrize("strength", [1.0, 1e-3, 100.0])
@pytest.mark.parametrize("case", CASES)
def test_agrees_with_a_float64_reference(case: str, strength: float) -> None:
    x = CASES[case]
    y = Y[: len(x)]
    with jax.enable_x64(True):
        fit = fit_ridge(jnp.asarray(x), jnp.asarray(y), strength)
        predicted = np.asarray(fit(jnp.asarray(x)))
    expected = SklearnRidge(alpha=strength, solver="svd").fit(x, y)
    np.testing.assert_allclose(predicted, expected.predict(x), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(fit.weights, expected.coef_.T, rtol=1e-6, atol=1e-6)


def test_float32_is_good_enough_on_kind_data() -> None:
    fit = fit_ridge(jnp.asarray(X, jnp.float32), jnp.asarray(Y, jnp.float32), 1.0)
    expected = SklearnRidge(alpha=1.0).fit(X, Y)
    np.testing.assert_allclose(fit.weights, expected.coef_.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(fit.intercept, expected.intercept_, rtol=1e-4, atol=1e-5)
