"""Multi-head softmax attention with a relative position bias.

Paper: Appendix C.3 (app:architecture); Vaswani et al. 2017, Section 3.2.
"""

from math import sqrt

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from recombine.config.model import TrunkConfig
from recombine.model.layer.linear import Linear


class MultiHeadAttention(eqx.Module):
    """softmax(q kᵀ / √d_head + bias) v in every head; the heads are concatenated and projected back."""

    query: Linear
    key: Linear
    value: Linear
    output: Linear
    num_heads: int = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    causal: bool = eqx.field(static=True)

    def __init__(self, config: TrunkConfig, *, key: Key[Array, ""]):
        keys = jax.random.split(key, 4)
        maps = [Linear(config.embed_dim, config.embed_dim, key=k) for k in keys]
        self.query, self.key, self.value, self.output = maps
        self.num_heads = config.num_heads
        self.scale = 1 / sqrt(config.embed_dim // config.num_heads) if config.scale_scores else 1.0
        self.causal = config.causal

    def __call__(
        self,
        X: Float[Array, "tokens embed"],
        bias: Float[Array, "heads tokens tokens"] | None,
        kept: Float[Array, "heads tokens tokens"] | None = None,
    ) -> tuple[Float[Array, "tokens embed"], Float[Array, "heads tokens tokens"]]:
        """The attention output of each token, and the attention weights. Dropout multiplies the weights by `kept`."""
        q, k, v = (self._split_heads(linear(X)) for linear in (self.query, self.key, self.value))
        scores = q @ k.swapaxes(1, 2) * self.scale
        if bias is not None:
            scores = scores + bias
        if self.causal:
            scores = jnp.where(jnp.tri(len(X), dtype=bool), scores, -jnp.inf)
        attention = jax.nn.softmax(scores, axis=-1)
        if kept is not None:
            attention = attention * kept.astype(attention.dtype)
        gathered = (attention @ v).swapaxes(0, 1).reshape(X.shape)
        return self.output(gathered), attention

    def _split_heads(self, X: Float[Array, "tokens embed"]) -> Float[Array, "heads tokens head_dim"]:
        return X.reshape(len(X), self.num_heads, -1).swapaxes(0, 1)
