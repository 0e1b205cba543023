"""Gated linear attention: attention as a recurrence, with a state of fixed size and gates that decide what it forgets.

Yang et al. 2024, "Gated Linear Attention Transformers". State-space models such as Mamba-2 have the same form.
"""

from math import sqrt

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from recombine.config.schema import Config
from recombine.model.architecture.feedforward import Feedforward, read_sizes
from recombine.model.interface import Output, Trace
from recombine.model.layer.linear import Linear, as_label
from recombine.model.trunk import pair_tokens

SLOW = 16.0  # the gates are σ(·)^(1/16): at the start a state forgets 4 % with each token


class GatedBlock(eqx.Module):
    """S_t = G_t ⊙ S_{t−1} + k_t v_tᵀ and o_t = q_t S_t in every head; then a feedforward network."""

    norm: eqx.nn.LayerNorm
    query: Linear
    key: Linear
    value: Linear
    gate: Linear
    head_norm: eqx.nn.LayerNorm
    output: Linear
    feedforward_norm: eqx.nn.LayerNorm
    feedforward: Feedforward
    num_heads: int = eqx.field(static=True)

    def __init__(self, width: int, num_heads: int, factor: int, *, key: Key[Array, ""]):
        keys = jax.random.split(key, 6)
        self.norm, self.feedforward_norm = (eqx.nn.LayerNorm(width, dtype=jnp.float32) for _ in range(2))
        self.query, self.key, self.value, self.gate, self.output = (Linear(width, width, key=k) for k in keys[:5])
        self.head_norm = eqx.nn.LayerNorm(width // num_heads, dtype=jnp.float32)
        self.feedforward = Feedforward(width, factor * width, width, key=keys[5])
        self.num_heads = num_heads

    def __call__(self, X: Float[Array, "tokens embed"]) -> Float[Array, "tokens embed"]:
        h = jax.vmap(self.norm)(X)
        q, k, v, g = (self._heads(linear(h)) for linear in (self.query, self.key, self.value, self.gate))
        forget = jax.nn.sigmoid(g) ** (1 / SLOW)

        def step(S: Float[Array, "H k v"], token: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
            q, k, v, forget = token
            S = forget[:, :, None] * S + k[:, :, None] * v[:, None, :]
            return S, jnp.einsum("hk,hkv->hv", q, S)

        size = q.shape[-1]
        start = jnp.zeros_like(X, shape=(self.num_heads, size, size))
        _, gathered = jax.lax.scan(step, start, (q / sqrt(size), k, v, forget))
        gathered = jax.vmap(jax.vmap(self.head_norm))(gathered).reshape(X.shape)
        X = X + self.output(gathered)
        return X + self.feedforward(jax.vmap(self.feedforward_norm)(X))

    def _heads(self, X: Float[Array, "tokens embed"]) -> Float[Array, "tokens heads head_dim"]:
        return X.reshape(len(X), self.num_heads, -1)


class GatedAttention(eqx.Module):
    """((x₁, y₁), …, (x_{N−1}, y_{N−1}), (x_N, 0)) through gated blocks; the readout projects the query token."""

    embedding: Linear
    blocks: tuple[GatedBlock, ...]
    final_norm: eqx.nn.LayerNorm
    readout: Linear

    def __init__(self, config: Config, *, key: Key[Array, ""]):
        sizes = read_sizes(config, embed_dim=128, num_heads=4, num_layers=2, ffn_factor=4)
        width, task = sizes["embed_dim"], config.task
        keys = jax.random.split(key, 2 + sizes["num_layers"])
        self.embedding = Linear(task.input_dim + task.output_dim, width, key=keys[0])
        self.blocks = tuple(GatedBlock(width, sizes["num_heads"], sizes["ffn_factor"], key=k) for k in keys[2:])
        self.final_norm = eqx.nn.LayerNorm(width, dtype=jnp.float32)
        self.readout = Linear(width, task.output_dim, key=keys[1])

    def __call__(
        self,
        context_x: Float[Array, "context d"],
        context_y: Float[Array, "context *out"],
        query_x: Float[Array, "d"],
    ) -> Output:
        streams = [self.embedding(pair_tokens(context_x, context_y, query_x))]
        for block in self.blocks:
            streams.append(block(streams[-1]))
        return Output(as_label(self.readout(self.final_norm(streams[-1][-1]))), Trace(jnp.stack(streams)))
