"""Runs a model on a batch of episodes, by the plain path or the fast one."""

import inspect
from contextlib import AbstractContextManager
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from recombine.config.model import ExtraPair
from recombine.config.schema import ComputeConfig
from recombine.model.fast import fast_forward
from recombine.model.framework.torch_model import TorchModel
from recombine.model.interface import BatchOutput, Model
from recombine.model.trunk import TrunkModel

PLAIN = ComputeConfig(path="plain")

T = TypeVar("T")


def predict_batch(
    model: Model,
    context_x: Float[Array, "B context d"],
    context_y: Float[Array, "B context *out"],
    query_x: Float[Array, "B d"],
    compute: ComputeConfig = PLAIN,
    keys: Key[Array, "B"] | None = None,
) -> Float[Array, "B *out"]:
    """The predicted query labels, in the precision of the inputs."""
    return forward_batch(model, context_x, context_y, query_x, compute, keys).y


def forward_batch(
    model: Model,
    context_x: Float[Array, "B context d"],
    context_y: Float[Array, "B context *out"],
    query_x: Float[Array, "B d"],
    compute: ComputeConfig = PLAIN,
    keys: Key[Array, "B"] | None = None,
) -> BatchOutput:
    """The predictions, the last token's residual stream, and the latent. The compiler drops the parts not used.

    While a model that `takes_key` is trained, `keys` has a key for each episode.
    """
    inputs = (context_x, context_y, query_x)
    if isinstance(model, TorchModel):
        return model.forward(*inputs)
    if compute.precision == "bfloat16":
        model, inputs = _to_bfloat16(model), _to_bfloat16(inputs)
    with matmul_precision(compute):
        if compute.path == "fast" and isinstance(model, TrunkModel):
            output = fast_forward(model, *inputs, keys)
        else:
            with_key = lambda key, *inputs: model(*inputs, key=key)  # noqa: E731  # pyright: ignore[reportCallIssue]
            y, trace = jax.vmap(model)(*inputs) if keys is None else jax.vmap(with_key)(keys, *inputs)
            output = BatchOutput(y, None if trace.residual is None else trace.residual[:, :, -1], trace.latent)
    return jax.tree.map(lambda array: array.astype(context_y.dtype), output)


def matmul_precision(compute: ComputeConfig) -> AbstractContextManager:
    """The precision of matrix products while a pass, or its gradient, is traced inside."""
    return jax.default_matmul_precision("highest" if compute.precision == "float32" else "default")


def extra_pair(model: object) -> ExtraPair | None:
    """The pair that the model is shown besides the context: the true latent's, or the query's own with its label."""
    if getattr(model, "literal_input", False):
        return "query"
    return "latent" if getattr(model, "given_latent", False) else None


def takes_key(model: Model) -> bool:
    """Whether the model draws random numbers while it is trained."""
    call = type(model).__call__
    if isinstance(model, TrunkModel) and call is TrunkModel.__call__:
        return model.trunk.dropout > 0
    return "key" in inspect.signature(call).parameters


def _to_bfloat16(tree: T) -> T:
    return jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16) if eqx.is_inexact_array(leaf) else leaf, tree)
