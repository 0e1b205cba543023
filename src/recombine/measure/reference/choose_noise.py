"""Chooses the noise of the reference `trained_covariance`, from trained masks alone.

One trained mask after the other is left out: contexts of this mask are predicted from the tasks of all other trained
masks. The noise is the one of a fixed grid with the smallest squared error, summed over all left-out masks. Held-out
masks play no part in it.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from recombine.measure.predict import chunk_of, map_in_chunks
from recombine.measure.reference.trained_tasks import TrainedTasks, krige, mask_of_task
from recombine.numerics import exact_jit
from recombine.stream import Stream
from recombine.support.support import Support
from recombine.task.episode import Episode
from recombine.task.sample import sample_masks
from recombine.task.teacher import Teacher

NOISES = (1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0)  # as fractions of the labels' variance
ONE_MASK = 0.01  # the noise where there is only one trained mask, so that none can be left out
NUM_CONTEXTS = 500  # one chunk


def choose_noise(seed: int, teacher: Teacher, support: Support, length: int, tasks: TrainedTasks) -> float:
    """The noise for episodes of this length. `tasks` are those of `draw_tasks`."""
    if len(support.masks) == 1:
        return ONE_MASK
    return NOISES[int(np.argmin(left_out_errors(seed, teacher, support, length, tasks).sum(axis=0)))]


def left_out_errors(
    seed: int, teacher: Teacher, support: Support, length: int, tasks: TrainedTasks
) -> Float[np.ndarray, "contexts noises"]:
    """The squared error of each context's query with each noise, without the tasks of the context's mask."""
    contexts = sample_masks(seed, Stream.trained_tasks, teacher, support.masks, length, NUM_CONTEXTS, step=1)
    with jax.enable_x64(True):
        tasks, contexts = jax.tree.map(_widen, (tasks, contexts))
        return np.asarray(_errors(tasks, jnp.asarray(mask_of_task(support)), contexts, jnp.asarray(NOISES)))


def _widen(array: Array) -> Array:
    return jnp.asarray(array, jnp.float64) if jnp.issubdtype(array.dtype, jnp.floating) else array


@exact_jit
def _errors(
    tasks: TrainedTasks, mask: Int[Array, "K"], contexts: Episode, noises: Float[Array, "noises"]
) -> Float[Array, "contexts noises"]:
    def errors(episode: Episode) -> Float[Array, "noises"]:
        g = tasks.labels(jnp.concatenate([episode.context_x, episode.query_x[None]]))
        weight = (mask != episode.mask_index).astype(g.dtype)
        predicted = jax.vmap(lambda noise: krige(episode.context_y, g, weight, noise))(noises)
        return jnp.sum((predicted - episode.query_y) ** 2, axis=tuple(range(1, predicted.ndim)))

    return map_in_chunks(errors, contexts, chunk_of(contexts.query_y.shape[1:]))
