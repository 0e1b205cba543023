"""The affine layer that both models use."""

from math import sqrt

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

# The standard deviation of a standard normal truncated at ±2. Dividing the draws by it gives them unit variance.
TRUNCATED_STD = 0.87962566103423978


class Linear(eqx.Module):
    """x ↦ x W + b over the last axis.

    Initialised by Flax's default: LeCun's truncated normal of variance 1/inputs, and b = 0.
    `equinox.nn.Linear` has a third of that variance, and random biases.
    """

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, "outputs"]

    def __init__(self, inputs: int, outputs: int, *, key: Key[Array, ""]):
        draws = jax.random.truncated_normal(key, -2.0, 2.0, (inputs, outputs), jnp.float32)
        self.weight = draws / (TRUNCATED_STD * sqrt(inputs))
        self.bias = jnp.zeros(outputs, jnp.float32)

    def __call__(self, x: Float[Array, "*rows inputs"]) -> Float[Array, "*rows outputs"]:
        return x @ self.weight + self.bias


def as_label(y: Float[Array, "*rows outputs"]) -> Float[Array, "*rows_out"]:
    """A label has an axis for its outputs only if there are several: one output is a number."""
    return y[..., 0] if y.shape[-1] == 1 else y
