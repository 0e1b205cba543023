"""A model's predictions for many episodes, in chunks that bound the memory."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recombine.model.build import Model
from recombine.task.episode import Episode

CHUNK = 512


@eqx.filter_jit
def predict(model: Model, episodes: Episode) -> Float[Array, "E"]:
    """The predicted query label of every episode."""

    def one(episode: Episode) -> Float[Array, ""]:
        return model(episode.context_x, episode.context_y, episode.query_x).y

    return jax.lax.map(one, _without_label(episodes), batch_size=min(CHUNK, len(episodes.query_y)))


def _without_label(episodes: Episode) -> Episode:
    """The episodes with every query label gone: what follows cannot depend on it."""
    return eqx.tree_at(lambda e: e.query_y, episodes, jnp.full_like(episodes.query_y, jnp.nan))
