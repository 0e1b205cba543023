"""The error of the explicit construction: how closely it reproduces the hypernetwork.

Paper: Appendix A.2 (app:hnet_construction), the claim that a transformer is expressive enough.
"""

from math import sqrt
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.special import erf

from recombine.model.construction import construct, construction_output, construction_tokens
from recombine.numerics import exact_jit


class ConstructionError(NamedTuple):
    """The largest error over the trials, and the largest output to compare it with."""

    max_abs_error: float
    max_abs_output: float


def construction_error(
    seed: int, num_modules: int, input_dim: int, hidden_dim: int, output_dim: int, trials: int, dtype: str
) -> ConstructionError:
    """Build the linear transformer for `trials` random hypernetworks, each with its own x and z, and compare.

    θ and A are scaled so that W(z) x and the outputs are of order one. NumPy evaluates the hypernetwork in float64, on
    exactly the numbers that the transformer was given.
    """
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(trials, num_modules, hidden_dim, input_dim)) / sqrt(num_modules * input_dim)
    A = rng.normal(size=(trials, output_dim, hidden_dim)) / sqrt(hidden_dim)
    x, z = rng.normal(size=(trials, input_dim)), rng.normal(size=(trials, num_modules))
    theta, A, x, z = (array.astype(dtype) for array in (theta, A, x, z))

    def run(theta: Array, A: Array, x: Array, z: Array) -> Array:
        tokens = construction_tokens(x, z, hidden_dim, output_dim)
        return construction_output(construct(theta, A)(tokens), output_dim)

    with jax.enable_x64(dtype == "float64"):
        output = np.asarray(exact_jit(jax.vmap(run))(*map(jnp.asarray, (theta, A, x, z))))
    theta, A, x, z = (array.astype(np.float64) for array in (theta, A, x, z))
    u = np.einsum("tm,tmhd,td->th", z, theta, x, optimize=True)
    expected = np.einsum("toh,th->to", A, u * (1 + erf(u / sqrt(2))) / 2)
    return ConstructionError(float(np.abs(output - expected).max()), float(np.abs(expected).max()))
