"""Ridge regression in closed form."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class Ridge(NamedTuple):
    """x ↦ x weights + intercept."""

    weights: Float[Array | np.ndarray, "features targets"]
    intercept: Float[Array | np.ndarray, "targets"]

    def __call__(self, x: Float[Array, "... features"]) -> Float[Array, "... targets"]:
        return x @ self.weights + self.intercept


def fit_ridge(
    x: Float[Array, "samples features"], y: Float[Array, "samples targets"], strength: float | Float[Array, ""]
) -> Ridge:
    """argmin ‖y − x w − b‖² + strength ‖w‖², the intercept b unpenalised.

    Inputs and targets are centred, and (xᵀx + strength I) w = xᵀy is solved by Cholesky. The matrix is positive
    definite whatever the rank of x. In float32 the accuracy is limited by the conditioning; pass float64 arrays if that
    is not enough.
    """
    x_mean, y_mean = x.mean(axis=0), y.mean(axis=0)
    x_centred, y_centred = x - x_mean, y - y_mean
    gram = x_centred.T @ x_centred + strength * jnp.eye(x.shape[1], dtype=x.dtype)
    factor = jax.scipy.linalg.cho_factor(gram)
    weights = jax.scipy.linalg.cho_solve(factor, x_centred.T @ y_centred)
    return Ridge(weights, y_mean - x_mean @ weights)
