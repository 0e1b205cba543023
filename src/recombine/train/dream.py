"""Dreaming: a hypertransformer labels training episodes itself, by the tasks of latents that it mixes.

Its modules and readout stay fixed, and the rest, which infers the latent, is trained. If inference then generalises to
held-out combinations, it lacked suitable training episodes, and no teacher had to provide them.

A dreamer may not know which combinations are held out, nor what a module is. So it takes the latents that the model
infers from two training episodes, drawn independently, and mixes them: a point on the line between the two, scaled to
the size of a training task. Where the two tasks have different masks, their mixture has modules active together that no
training task has. On the supports of pairs, a held-out pair alone is never dreamed. On a support with single modules it
may be: two single modules mix to a pair.
"""

from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from recombine.config.schema import Config
from recombine.model.forward import forward_batch
from recombine.model.hypertransformer import Hypertransformer
from recombine.model.interface import Model
from recombine.task.episode import Episode, add_noise, episode_keys, sample_episode
from recombine.task.interface import Teacher

T = TypeVar("T")


class Dreams(NamedTuple):
    """What it takes to turn training episodes into dreamed ones: a second training episode and a key for each."""

    others: Episode
    keys: Key[Array, "B"]
    dreamed: Bool[Array, "B"]
    """Which episodes of the batch are dreamed. The others stay as they are."""


def sample_dreams(
    key: Key[Array, ""],
    config: Config,
    teacher: Teacher,
    masks: Float[Array, "S M"],
    num_masks: Int[Array, ""],
    num_episodes: int,
    first: int | Int[Array, ""],
) -> Dreams:
    """The episodes `first`, `first` + 1, … of a step. The first ones of the whole batch are dreamed."""
    other_key, mix_key = jax.random.split(key)
    length = config.task.episode_length
    sample = jax.vmap(lambda key: sample_episode(key, teacher, masks, length, num_masks))
    others = sample(episode_keys(other_key, num_episodes, first))
    numbers = jnp.arange(num_episodes) + first
    dreamed = numbers < round((config.train.dream or 0.0) * config.optimizer.batch_size)
    return Dreams(others, episode_keys(mix_key, num_episodes, first), dreamed)


def dream(config: Config, model: Model, teacher: Teacher, episodes: Episode, dreams: Dreams) -> Episode:
    """The episodes, those that are dreamed with the labels of a mixed latent. Their inputs stay the same."""
    assert isinstance(model, Hypertransformer)
    model = jax.lax.stop_gradient(model)
    both: Episode = jax.tree.map(lambda one, other: jnp.concatenate([one, other]), episodes, dreams.others)
    z = forward_batch(model, *both.shown(), compute=config.compute).latent
    assert z is not None
    one, other = jnp.split(z, 2)

    def relabel(
        key: Key[Array, ""], one: Float[Array, "latent"], other: Float[Array, "latent"], episode: Episode
    ) -> tuple[Float[Array, "context *out"], Float[Array, "*out"]]:
        mix_key, noise_key = jax.random.split(key)
        z = mix_latents(mix_key, one, other, model.theta)
        y = jax.vmap(model.execute, in_axes=(None, 0))(z, episode.context_x)
        return add_noise(noise_key, teacher, y), model.execute(z, episode.query_x)

    context_y, query_y = jax.vmap(relabel)(dreams.keys, one, other, episodes)
    choose = jax.vmap(jnp.where)
    return eqx.tree_at(
        lambda episode: (episode.context_y, episode.query_y),
        episodes,
        (
            choose(dreams.dreamed, context_y, episodes.context_y),
            choose(dreams.dreamed, query_y, episodes.query_y),
        ),
    )


def mix_latents(
    key: Key[Array, ""],
    one: Float[Array, "latent"],
    other: Float[Array, "latent"],
    theta: Float[Array, "latent hidden d"],
) -> Float[Array, "latent"]:
    """u z + (1 − u) z′ with u uniform in [0, 1] and both latents of size 1, scaled to the size of the first.

    The size of a latent is the Frobenius norm of the weights that it generates, Σ_m z_m θ_m.
    """
    gram = jnp.einsum("mhd,nhd->mn", theta, theta)

    def size(z: Float[Array, "latent"]) -> Float[Array, ""]:
        return jnp.sqrt(jnp.maximum(z @ gram @ z, jnp.finfo(z.dtype).tiny))

    u = jax.random.uniform(key, (), one.dtype)
    z = u * one / size(one) + (1 - u) * other / size(other)
    return z * (size(one) / size(z))


def without_decoder(updates: T) -> T:
    """The updates of a hypertransformer's parameters, 0 for its modules and its readout."""
    return eqx.tree_at(_decoder, updates, replace_fn=lambda tree: jax.tree.map(jnp.zeros_like, tree))


def fixed_decoder(model: T) -> T:
    """The model without a gradient for its modules and its readout."""
    return eqx.tree_at(_decoder, model, replace_fn=jax.lax.stop_gradient)


def _decoder(model: Hypertransformer) -> tuple:
    return (model.theta, model.readout) if model.base is None else (model.theta, model.readout, model.base)
