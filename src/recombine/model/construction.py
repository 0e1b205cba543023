"""A linear transformer that computes a hypernetwork exactly: the paper's explicit construction.

Paper: Appendix A.2, "Construction" (app:hnet_construction). Two misprints are corrected: A is o×h (printed o×d), and
a head's value dimension is d_v = h while d_q = d_k = 1. Unlike the teacher's, W(z) is not normalised here.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from recombine.model.linear_transformer import LinearBlock, LinearTransformer


def construct(theta: Float[Array, "M h d"], A: Float[Array, "o h"]) -> LinearTransformer:
    """One block of M heads whose forward pass on `construction_tokens` computes the hypernetwork A σ(Σ_m z_m θ_m x).

    A token has four slots, (x: d, z: M, hidden: h, output: o).
    Attention, head m: the query reads z_m, the key reads the 1 in the first hidden slot, the value is θ_m x; so the
    second token gathers Σ_m z_m θ_m x = W(z) x, and W_P writes it to the hidden slot.
    Feedforward: W₁ reads the hidden slot, W₂ writes A σ(·) to the output slot.
    """
    M, h, d = theta.shape
    o = len(A)
    d_m = d + M + h + o
    x_slot, z_slot = slice(0, d), slice(d, d + M)
    hidden_slot, output_slot = slice(d + M, d + M + h), slice(d + M + h, d_m)

    zeros = jnp.zeros_like(theta, shape=(M, d_m, 1))
    W_q = zeros.at[:, z_slot, 0].set(jnp.eye(M, dtype=theta.dtype))
    W_k = zeros.at[:, hidden_slot.start, 0].set(1)
    W_v = jnp.zeros_like(theta, shape=(M, d_m, h)).at[:, x_slot].set(theta.swapaxes(1, 2))
    W_P = jnp.zeros_like(theta, shape=(M, h, d_m)).at[:, :, hidden_slot].set(jnp.eye(h, dtype=theta.dtype))
    W_1 = jnp.zeros_like(theta, shape=(d_m, h)).at[hidden_slot].set(jnp.eye(h, dtype=theta.dtype))
    W_2 = jnp.zeros_like(theta, shape=(h, d_m)).at[:, output_slot].set(A.T)
    return LinearTransformer((LinearBlock(W_q, W_k, W_v, W_P, W_1, W_2),))


def construction_tokens(
    x: Float[Array, "d"], z: Float[Array, "M"], hidden_dim: int, output_dim: int
) -> Float[Array, "2 d_m"]:
    """e₁ = (x, 0_M, 1_{h+o}) and e₂ = (0_d, z, 0_{h+o})."""
    rest = hidden_dim + output_dim
    e_1 = jnp.concatenate([x, jnp.zeros_like(z), jnp.ones_like(x, shape=rest)])
    e_2 = jnp.concatenate([jnp.zeros_like(x), z, jnp.zeros_like(x, shape=rest)])
    return jnp.stack([e_1, e_2])


def construction_output(E: Float[Array, "2 d_m"], output_dim: int) -> Float[Array, "o"]:
    """The output slot of the second token."""
    return E[1, -output_dim:]
