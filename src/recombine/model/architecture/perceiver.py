"""A Perceiver-style encoder with the hypernetwork behind it: a few learned slots read the context by cross-attention.

Jaegle et al. 2021, "Perceiver". The context is a set here: there are no positions. The latent is executed by a
hypernetwork, as in the hypertransformer, so that only the encoder differs.
"""

from math import sqrt

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from recombine import paper
from recombine.config.schema import Config
from recombine.model.architecture.feedforward import Feedforward, read_sizes
from recombine.model.interface import Output, Trace
from recombine.model.layer.linear import Linear, as_label


class CrossAttention(eqx.Module):
    """softmax(q kᵀ / √d_head) v in every head: the slots ask, the tokens answer."""

    query: Linear
    key: Linear
    value: Linear
    output: Linear
    num_heads: int = eqx.field(static=True)

    def __init__(self, width: int, num_heads: int, *, key: Key[Array, ""]):
        maps = [Linear(width, width, key=k) for k in jax.random.split(key, 4)]
        self.query, self.key, self.value, self.output = maps
        self.num_heads = num_heads

    def __call__(
        self, slots: Float[Array, "slots embed"], tokens: Float[Array, "tokens embed"]
    ) -> Float[Array, "slots embed"]:
        q, k, v = self._heads(self.query(slots)), self._heads(self.key(tokens)), self._heads(self.value(tokens))
        weights = jax.nn.softmax(q @ k.swapaxes(1, 2) / sqrt(q.shape[-1]), axis=-1)
        return self.output((weights @ v).swapaxes(0, 1).reshape(slots.shape))

    def _heads(self, X: Float[Array, "rows embed"]) -> Float[Array, "heads rows head_dim"]:
        return X.reshape(len(X), self.num_heads, -1).swapaxes(0, 1)


class PerceiverBlock(eqx.Module):
    """The slots read the tokens, then each other, then a feedforward network acts on each slot."""

    norms: tuple[eqx.nn.LayerNorm, ...]
    cross: CrossAttention
    own: CrossAttention
    feedforward: Feedforward

    def __init__(self, width: int, num_heads: int, factor: int, *, key: Key[Array, ""]):
        keys = jax.random.split(key, 3)
        self.norms = tuple(eqx.nn.LayerNorm(width, dtype=jnp.float32) for _ in range(4))
        self.cross, self.own = (CrossAttention(width, num_heads, key=k) for k in keys[:2])
        self.feedforward = Feedforward(width, factor * width, width, key=keys[2])

    def __call__(
        self, slots: Float[Array, "slots embed"], tokens: Float[Array, "tokens embed"]
    ) -> Float[Array, "slots embed"]:
        asking, told, own, last = (jax.vmap(norm) for norm in self.norms)
        slots = slots + self.cross(asking(slots), told(tokens))
        normed = own(slots)
        slots = slots + self.own(normed, normed)
        return slots + self.feedforward(last(slots))


class Perceiver(eqx.Module):
    """Slots read the context; their mean gives ẑ; y = readout(σ(Σ_m ẑ_m θ̂_m x_N))."""

    embedding: Feedforward
    slots: Float[Array, "slots embed"]
    blocks: tuple[PerceiverBlock, ...]
    final_norm: eqx.nn.LayerNorm
    latent: Linear
    theta: Float[Array, "latent hidden d"]
    readout: Linear

    def __init__(self, config: Config, *, key: Key[Array, ""]):
        sizes = read_sizes(
            config,
            embed_dim=64,
            num_heads=4,
            num_layers=2,
            ffn_factor=4,
            num_slots=8,
            latent_dim=config.task.num_modules,
            hidden_dim=paper.MAIN_HIDDEN_DIM.hypertransformer,
        )
        width, d, o = sizes["embed_dim"], config.task.input_dim, config.task.output_dim
        keys = jax.random.split(key, 5 + sizes["num_layers"])
        self.embedding = Feedforward(d + o, 4 * width, width, key=keys[0])
        self.slots = jax.random.normal(keys[1], (sizes["num_slots"], width), jnp.float32)
        self.blocks = tuple(PerceiverBlock(width, sizes["num_heads"], sizes["ffn_factor"], key=k) for k in keys[5:])
        self.final_norm = eqx.nn.LayerNorm(width, dtype=jnp.float32)
        self.latent = Linear(width, sizes["latent_dim"], key=keys[2])
        shape = (sizes["latent_dim"], sizes["hidden_dim"], d)
        self.theta = jax.random.normal(keys[3], shape, jnp.float32) / sqrt(sizes["latent_dim"] * d)
        self.readout = Linear(sizes["hidden_dim"], o, key=keys[4])

    def execute(self, z: Float[Array, "latent"], x: Float[Array, "d"]) -> Float[Array, "*out"]:
        """Apply the task network of a latent, as in the hypertransformer."""
        W = jnp.einsum("m,mhd->hd", z, self.theta)
        return as_label(self.readout(jax.nn.gelu(W @ x, approximate=False)))

    def __call__(
        self,
        context_x: Float[Array, "context d"],
        context_y: Float[Array, "context *out"],
        query_x: Float[Array, "d"],
    ) -> Output:
        tokens = self.embedding(jnp.column_stack([context_x, context_y]))
        slots = self.slots
        for block in self.blocks:
            slots = block(slots, tokens)
        z = self.latent(self.final_norm(slots.mean(axis=0)))
        return Output(self.execute(z, query_x), Trace(latent=z))
