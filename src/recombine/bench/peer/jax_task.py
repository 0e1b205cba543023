"""Episodes, sampled online in plain JAX by the paper's law."""

from math import sqrt
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from recombine.bench.setting import PeerSetting


class Teacher(NamedTuple):
    """The modules and the readout that all tasks share."""

    theta: Float[Array, "M h d"]
    a: Float[Array, "h"]


class Episodes(NamedTuple):
    """A batch of tasks in context, and the latents that they stand for."""

    context_x: Float[Array, "B context d"]
    context_y: Float[Array, "B context"]
    query_x: Float[Array, "B d"]
    query_y: Float[Array, "B"]
    latent: Float[Array, "B M"]


def init_teacher(key: Key[Array, ""], setting: PeerSetting) -> Teacher:
    """Normal entries with the standard deviations 1/√M and 1/√h, truncated at two standard deviations."""
    theta_key, a_key = jax.random.split(key)
    theta = jax.random.truncated_normal(
        theta_key, -2.0, 2.0, (setting.num_modules, setting.hidden_dim, setting.input_dim)
    )
    a = jax.random.truncated_normal(a_key, -2.0, 2.0, (setting.hidden_dim,))
    return Teacher(theta / sqrt(setting.num_modules), a / sqrt(setting.hidden_dim))


def sample_latents(key: Key[Array, ""], mask: Float[Array, "B M"]) -> Float[Array, "B M"]:
    """z ~ Exp(1)ᴹ;  z ← z ⊙ m;  z ← z / ‖z‖₁;  z ← ½ (z + m)."""
    z = jax.random.exponential(key, mask.shape)
    z = jnp.maximum(z, jnp.finfo(z.dtype).tiny) * mask  # JAX may draw exactly 0: a mask of one module would give 0/0
    return 0.5 * (z / z.sum(axis=-1, keepdims=True) + mask)


def sample_episodes(
    key: Key[Array, ""], setting: PeerSetting, teacher: Teacher, masks: Float[Array, "S M"]
) -> Episodes:
    """y = aᵀ σ(W x), where W is Σ_m z_m θ_m over its operator norm, and x ~ U(−√3, √3). The last pair is the query."""
    mask_key, latent_key, input_key = jax.random.split(key, 3)
    z = sample_latents(latent_key, masks[jax.random.randint(mask_key, (setting.batch_size,), 0, len(masks))])
    W = jnp.einsum("bm,mhd->bhd", z, teacher.theta)
    W = W / jnp.linalg.norm(W, ord=2, axis=(-2, -1), keepdims=True)
    shape = (setting.batch_size, setting.episode_length, setting.input_dim)
    x = jax.random.uniform(input_key, shape, minval=-sqrt(3), maxval=sqrt(3))
    y = jax.nn.gelu(x @ W.mT, approximate=False) @ teacher.a
    return Episodes(x[:, :-1], y[:, :-1], x[:, -1], y[:, -1], z)
