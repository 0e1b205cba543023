"""Runs a model on a batch of episodes, by the plain path or the fast one."""

from contextlib import AbstractContextManager
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recombine.config.schema import ComputeConfig
from recombine.model.fast import fast_forward
from recombine.model.interface import BatchOutput, Model
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
    """The predicted query labels, in the precision of the inputs."""
    return forward_batch(model, context_x, context_y, query_x, compute).y


def forward_batch(
    model: Model,
    context_x: Float[Array, "B context d"],
    context_y: Float[Array, "B context"],
    query_x: Float[Array, "B d"],
    compute: ComputeConfig = PLAIN,
) -> BatchOutput:
    """The predictions, the last token's residual stream, and the latent. The compiler drops the parts not used."""
    inputs = (context_x, context_y, query_x)
    if compute.precision == "bfloat16":
        model, inputs = _to_bfloat16(model), _to_bfloat16(inputs)
    with matmul_precision(compute):
        if compute.path == "fast" and isinstance(model, TrunkModel):
            output = fast_forward(model, *inputs)
        else:
            y, trace = jax.vmap(model)(*inputs)
            output = BatchOutput(y, None if trace.residual is None else trace.residual[:, :, -1], trace.latent)
    return jax.tree.map(lambda array: array.astype(context_y.dtype), output)


def matmul_precision(compute: ComputeConfig) -> AbstractContextManager:
    """The precision of matrix products while a pass, or its gradient, is traced inside."""
    return jax.default_matmul_precision("highest" if compute.precision == "float32" else "default")


def given_latent(model: Model) -> bool:
    """Whether the model is given the true latent as input."""
    return bool(getattr(model, "given_latent", False))


def _to_bfloat16(tree: T) -> T:
    return jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16) if eqx.is_inexact_array(leaf) else leaf, tree)
