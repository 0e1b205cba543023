"""Predictions for a batch of episodes, by the plain path or the fast one."""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recombine.config import ComputeConfig
from recombine.model.build import Model
from recombine.model.fast import fast_predict
from recombine.model.trunk import TrunkModel

PLAIN = ComputeConfig(path="plain")

T = TypeVar("T")


def predict_batch(
    model: Model,
    context_x: Float[Array, "B context d"],
    context_y: Float[Array, "B context"],
    query_x: Float[Array, "B d"],
    compute: ComputeConfig = PLAIN,
) -> Float[Array, "B"]:
    """The predicted query labels, in the inputs' own precision."""
    inputs = (context_x, context_y, query_x)
    if compute.precision == "bfloat16":
        model, inputs = _to_bfloat16(model), _to_bfloat16(inputs)
    # On accelerators a float32 product is by default not one.
    with jax.default_matmul_precision("highest" if compute.precision == "float32" else "default"):
        if compute.path == "fast" and isinstance(model, TrunkModel):
            y = fast_predict(model, *inputs)
        else:
            y = jax.vmap(model)(*inputs).y
    return y.astype(context_y.dtype)


def _to_bfloat16(tree: T) -> T:
    return jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16) if eqx.is_inexact_array(leaf) else leaf, tree)
