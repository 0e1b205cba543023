"""How exactly the construction equals the hypernetwork.

Paper: Appendix A.2 (app:hnet_construction); the claim that a transformer is expressive enough.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from scipy.special import erf

from recombine.model.construction import construct, construction_output, construction_tokens
from recombine.stream import Stream, stream_key


class ConstructionError(NamedTuple):
    """The largest error over the trials, and the largest output to read it against."""

    max_abs_error: float
    max_abs_output: float


def construction_error(
    seed: int, num_modules: int, input_dim: int, hidden_dim: int, output_dim: int, trials: int, dtype: str
) -> ConstructionError:
    """Build the linear transformer for `trials` random hypernetworks, each with its own x and z, and compare.

    θ, A, x and z have unit-variance products, so that W(z) x and the outputs are of order one. The hypernetwork is
    evaluated by NumPy in float64, on the very numbers the transformer was given.
    """
    with jax.enable_x64(dtype == "float64"):
        keys = jax.random.split(stream_key(seed, Stream.teacher), trials)

        @eqx.filter_jit
        def run(keys):
            def one(key):
                k_theta, k_A, k_x, k_z = jax.random.split(key, 4)
                shape = (num_modules, hidden_dim, input_dim)
                theta = jax.random.normal(k_theta, shape, dtype) / (num_modules * input_dim) ** 0.5
                A = jax.random.normal(k_A, (output_dim, hidden_dim), dtype) / hidden_dim**0.5
                x = jax.random.normal(k_x, (input_dim,), dtype)
                z = jax.random.normal(k_z, (num_modules,), dtype)
                tokens = construction_tokens(x, z, hidden_dim, output_dim)
                return theta, A, x, z, construction_output(construct(theta, A)(tokens), output_dim)

            return jax.vmap(one)(keys)

        theta, A, x, z, output = (np.asarray(array, np.float64) for array in run(keys))
    u = np.einsum("tm,tmhd,td->th", z, theta, x)
    expected = np.einsum("toh,th->to", A, u * (1 + erf(u / np.sqrt(2))) / 2)
    return ConstructionError(float(np.abs(output - expected).max()), float(np.abs(expected).max()))
