"""The transformer block that both models use.

Paper: Appendix C.3.1: X ← MultiHeadAttention(LayerNorm(X)) + X;  X ← Feedforward(LayerNorm(X)) + X.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from recombine.config.model import TrunkConfig
from recombine.model.layer.attention import MultiHeadAttention
from recombine.model.layer.linear import Linear


class Feedforward(eqx.Module):
    """Two layers with a GELU between them, applied to each token."""

    expand: Linear
    contract: Linear

    def __init__(self, config: TrunkConfig, *, key: Key[Array, ""]):
        expand_key, contract_key = jax.random.split(key)
        width = config.ffn_factor * config.embed_dim
        self.expand = Linear(config.embed_dim, width, key=expand_key)
        self.contract = Linear(width, config.embed_dim, key=contract_key)

    def __call__(self, X: Float[Array, "tokens embed"]) -> Float[Array, "tokens embed"]:
        return self.contract(jax.nn.gelu(self.expand(X), approximate=False))


class Block(eqx.Module):
    """Attention, then feedforward. Each reads the normalised stream and adds its output to the stream."""

    attention_norm: eqx.nn.LayerNorm
    attention: MultiHeadAttention
    feedforward_norm: eqx.nn.LayerNorm
    feedforward: Feedforward

    def __init__(self, config: TrunkConfig, *, key: Key[Array, ""]):
        attention_key, feedforward_key = jax.random.split(key)
        self.attention_norm = eqx.nn.LayerNorm(config.embed_dim, dtype=jnp.float32)
        self.attention = MultiHeadAttention(config, key=attention_key)
        self.feedforward_norm = eqx.nn.LayerNorm(config.embed_dim, dtype=jnp.float32)
        self.feedforward = Feedforward(config, key=feedforward_key)

    def __call__(
        self,
        X: Float[Array, "tokens embed"],
        bias: Float[Array, "heads tokens tokens"] | None,
        kept: Float[Array, "heads tokens tokens"] | None = None,
    ) -> tuple[Float[Array, "tokens embed"], Float[Array, "heads tokens tokens"]]:
        """The stream after this block, and the attention weights (after dropout, if there is any)."""
        gathered, attention = self.attention(jax.vmap(self.attention_norm)(X), bias, kept)
        X = gathered + X
        X = self.feedforward(jax.vmap(self.feedforward_norm)(X)) + X
        return X, attention
