"""A model's predictions for many episodes, in chunks that bound the memory."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recombine.config import ComputeConfig
from recombine.model.batch import PLAIN, predict_batch
from recombine.model.build import Model
from recombine.task.episode import Episode

CHUNK = 500  # divides the paper's 16,000 episodes
CHUNK_TOKENS = 16_384


@eqx.filter_jit
def predict(model: Model, episodes: Episode, compute: ComputeConfig = PLAIN) -> Float[Array, "E"]:
    """The predicted query label of every episode."""

    def predict_chunk(inputs: tuple[Array, Array, Array]) -> Float[Array, "B"]:
        return predict_batch(model, *inputs, compute)

    inputs = (episodes.context_x, episodes.context_y, episodes.query_x)
    total, length = episodes.context_y.shape[0], episodes.context_y.shape[1] + 1
    size = min(total, CHUNK, max(1, CHUNK_TOKENS // length))
    whole = total - total % size
    chunks = jax.tree.map(lambda array: array[:whole].reshape(-1, size, *array.shape[1:]), inputs)
    predicted = jax.lax.map(predict_chunk, chunks).reshape(whole)
    if whole == total:
        return predicted
    return jnp.concatenate([predicted, predict_chunk(jax.tree.map(lambda array: array[whole:], inputs))])
