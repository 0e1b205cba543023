"""A model's predictions for many episodes, in chunks that bound the memory."""

import equinox as eqx
import jax
from jaxtyping import Array, Float

from recombine.model.build import Model
from recombine.task.episode import Episode

CHUNK = 500  # divides the paper's 16,000 episodes: a shorter last chunk would be compiled again


@eqx.filter_jit
def predict(model: Model, episodes: Episode) -> Float[Array, "E"]:
    """The predicted query label of every episode."""

    def one(episode: Episode) -> Float[Array, ""]:
        return model(episode.context_x, episode.context_y, episode.query_x).y

    return jax.lax.map(one, episodes, batch_size=min(CHUNK, len(episodes.query_y)))
