"""Two references that know the training tasks, but nothing about modules.

On trained masks, `TrainedTask` is perfect and `TrainedCovariance` about as good as the models. A model's score on
held-out masks is evidence of combining modules only where it exceeds both.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recombine.stream import Stream, stream_key
from recombine.support.support import Support
from recombine.task.episode import Episode
from recombine.task.latent import sample_latent
from recombine.task.teacher import Teacher

NUM_TASKS = 512  # at least 42 per mask of the paper's supports: R² > 0.999 in distribution
NOISE = 0.01  # as a fraction of the labels' variance


class TrainedTasks(eqx.Module):
    """Tasks drawn as in training: W of each, and their teacher. An episode's own teacher is ignored."""

    W: Any
    """The `task_weights` of each task, with a leading axis."""
    teacher: Teacher

    def labels(self, x: Float[Array, "n d"]) -> Float[Array, "K n"]:
        """The labels of every input under every task. Computed task by task: all at once would need 2 GB per chunk."""
        return jax.lax.map(lambda W: self.teacher.network(W, x), self.W)


class TrainedTask(TrainedTasks):
    """The trained task that fits the context best: a memory of tasks that never combines anything."""

    def __call__(self, teacher: Teacher, episode: Episode) -> Float[Array, ""]:
        best = jnp.argmin(jnp.sum((self.labels(episode.context_x) - episode.context_y) ** 2, axis=-1))
        return self.teacher.network(jax.tree.map(lambda W: W[best], self.W), episode.query_x)


class TrainedCovariance(TrainedTasks):
    """The best prediction that is affine in the context's labels: kriging with the trained tasks' mean and covariance.

    A little noise is added. Without it, the prediction relies on directions in which the trained tasks hardly vary:
    best for them, but bad for all other tasks.
    """

    noise: float = eqx.field(default=NOISE, static=True)

    def __call__(self, teacher: Teacher, episode: Episode) -> Float[Array, ""]:
        y = episode.context_y
        g = self.labels(jnp.concatenate([episode.context_x, episode.query_x[None]]))
        mean = g.mean(axis=0)
        k = (g - mean).T @ (g - mean) / len(g)
        noise = self.noise * jnp.trace(k[:-1, :-1]) / len(y)
        factor = jax.scipy.linalg.cho_factor(k[:-1, :-1] + noise * jnp.eye(len(y), dtype=y.dtype))
        return mean[-1] + k[-1, :-1] @ jax.scipy.linalg.cho_solve(factor, y - mean[:-1])


def draw_tasks(seed: int, teacher: Teacher, support: Support) -> TrainedTasks:
    """Draw the tasks, going through the trained masks in turn."""
    masks = jnp.asarray(support.masks, jnp.float32)[jnp.arange(NUM_TASKS) % len(support.masks)]
    z = jax.vmap(sample_latent)(jax.random.split(stream_key(seed, Stream.trained_tasks), NUM_TASKS), masks)
    return TrainedTasks(jax.vmap(teacher.task_weights)(z), teacher)
