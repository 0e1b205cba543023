"""Latents: the code z of a task, drawn for a mask."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key


def sample_latent(key: Key[Array, ""], mask: Float[Array, "M"]) -> Float[Array, "M"]:
    """Uniform on the simplex of the mask's active modules, then averaged with the mask itself.

    z ~ Exp(1)ᴹ;  z ← z ⊙ m;  z ← z / ‖z‖₁;  z ← ½ (z + m)

    Paper: Algorithm 1 (alg:task_sample).
    """
    z = jax.random.exponential(key, mask.shape, mask.dtype)
    z = jnp.maximum(z, jnp.finfo(z.dtype).tiny)  # one draw in 2²³ is exactly 0; on a 1-hot mask it would give 0/0
    z = z * mask
    z = z / z.sum()  # every entry is ≥ 0, so the sum is the 1-norm
    return 0.5 * (z + mask)
