"""GELU and its derivative, written out: both need erf, which is computed once."""

from math import pi, sqrt

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@jax.custom_vjp
def gelu(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """x Φ(x). The forward pass stores the derivative."""
    return x * _normal_cdf(x)


def gelu_and_slope(x: Float[Array, "*shape"]) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """x Φ(x), and its derivative Φ(x) + x φ(x)."""
    cdf = _normal_cdf(x)
    return x * cdf, cdf + x * jnp.exp(-0.5 * x * x) / sqrt(2 * pi)


def _normal_cdf(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    return 0.5 * (1 + jax.lax.erf(x / sqrt(2)))


gelu.defvjp(gelu_and_slope, lambda slope, G: (slope * G,))
