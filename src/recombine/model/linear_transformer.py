"""The linear transformer of the paper's Appendix A: attention without softmax.

Paper: Appendix A.1, "Linear attention block" (app:hnet_construction).
"""

from math import sqrt

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key


class LinearBlock(eqx.Module):
    """E ← E + Σ_h Q⁽ʰ⁾ K⁽ʰ⁾ᵀ V⁽ʰ⁾ W_P⁽ʰ⁾;  E ← E + σ(E W₁) W₂, with Q, K, V = E W_q, E W_k, E W_v and σ the GELU."""

    W_q: Float[Array, "H d_m d_k"]
    W_k: Float[Array, "H d_m d_k"]
    W_v: Float[Array, "H d_m d_v"]
    W_P: Float[Array, "H d_v d_m"]
    W_1: Float[Array, "d_m d_h"]
    W_2: Float[Array, "d_h d_m"]

    def __call__(self, E: Float[Array, "L d_m"]) -> Float[Array, "L d_m"]:
        Q, K, V = E @ self.W_q, E @ self.W_k, E @ self.W_v
        E = E + (Q @ K.swapaxes(1, 2) @ V @ self.W_P).sum(axis=0)
        return E + jax.nn.gelu(E @ self.W_1, approximate=False) @ self.W_2


class LinearTransformer(eqx.Module):
    """A stack of linear blocks, from tokens to tokens."""

    blocks: tuple[LinearBlock, ...]

    def __call__(self, E: Float[Array, "L d_m"]) -> Float[Array, "L d_m"]:
        for block in self.blocks:
            E = block(E)
        return E


def init_linear_transformer(
    key: Key[Array, ""], num_layers: int, num_heads: int, d_m: int, d_k: int, d_v: int, d_h: int
) -> LinearTransformer:
    """Random weights, each matrix of variance 1/inputs."""
    shapes = {
        "W_q": (num_heads, d_m, d_k),
        "W_k": (num_heads, d_m, d_k),
        "W_v": (num_heads, d_m, d_v),
        "W_P": (num_heads, d_v, d_m),
        "W_1": (d_m, d_h),
        "W_2": (d_h, d_m),
    }

    def init_block(key: Key[Array, ""]) -> LinearBlock:
        keys = jax.random.split(key, len(shapes))
        return LinearBlock(
            **{
                name: jax.random.normal(k, shape, jnp.float32) / sqrt(shape[-2])
                for k, (name, shape) in zip(keys, shapes.items(), strict=True)
            }
        )

    return LinearTransformer(tuple(init_block(k) for k in jax.random.split(key, num_layers)))
