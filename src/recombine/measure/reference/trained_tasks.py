"""Two references that know the training tasks, but nothing about modules.

On trained masks, `TrainedTask` is perfect and `TrainedCovariance` about as good as the models. A model's score on
held-out masks is evidence of combining modules only where it exceeds both.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from recombine.stream import Stream, stream_key
from recombine.support.support import Support
from recombine.task.episode import Episode
from recombine.task.latent import sample_latent
from recombine.task.teacher import Teacher

NUM_TASKS = 512  # at least 42 per mask of the paper's supports: R² > 0.999 in distribution


class TrainedTasks(eqx.Module):
    """Tasks drawn as in training: W of each, and their teacher. An episode's own teacher is ignored."""

    W: Any
    """The `task_weights` of each task, with a leading axis."""
    teacher: Teacher

    def labels(self, x: Float[Array, "n d"]) -> Float[Array, "K n *out"]:
        """The labels of every input under every task. Computed task by task: all at once would need 2 GB per chunk."""
        return jax.lax.map(lambda W: self.teacher.network(W, x), self.W)


class TrainedTask(TrainedTasks):
    """The trained task that fits the context best: a memory of tasks that never combines anything."""

    def __call__(self, teacher: Teacher, episode: Episode) -> Float[Array, "*out"]:
        errors = (self.labels(episode.context_x) - episode.context_y) ** 2
        best = jnp.argmin(jnp.sum(errors, axis=tuple(range(1, errors.ndim))))
        return self.teacher.network(jax.tree.map(lambda W: W[best], self.W), episode.query_x)


class TrainedCovariance(TrainedTasks):
    """The best prediction that is affine in the context's labels: kriging with the trained tasks' mean and covariance.

    A little noise is added. Without it, the prediction relies on directions in which the trained tasks hardly vary:
    best for them, but bad for all other tasks. `choose_noise` says how much.
    """

    noise: float = eqx.field(static=True)
    """As a fraction of the labels' variance."""

    def __call__(self, teacher: Teacher, episode: Episode) -> Float[Array, "*out"]:
        g = self.labels(jnp.concatenate([episode.context_x, episode.query_x[None]]))
        return krige(episode.context_y, g, jnp.ones_like(g, shape=len(g)), self.noise)


def krige(
    y: Float[Array, "n *out"], g: Float[Array, "K n+1 *out"], weight: Float[Array, "K"], noise: float | Float[Array, ""]
) -> Float[Array, "*out"]:
    """The label of the last input, given those of the others, from tasks with labels g. Tasks of weight 0 are left out.

    With the tasks' mean μ and covariance k: μ_q + k_q (k + λ I)⁻¹ (y − μ), λ being the noise times the mean variance.
    With several outputs, k is the covariance of all outputs of all inputs: one output tells about the others.
    """
    n, q = y.size, slice(y.size, None) if y.ndim > 1 else -1  # the numbers that are given, and the place of the others
    y, g = y.ravel(), g.reshape(len(g), -1)
    weight = weight / weight.sum()
    mean = weight @ g
    k = (weight[:, None] * (g - mean)).T @ (g - mean)
    added = noise * jnp.trace(k[:n, :n]) / n
    factor = jax.scipy.linalg.cho_factor(k[:n, :n] + added * jnp.eye(n, dtype=y.dtype))
    return mean[q] + k[q, :n] @ jax.scipy.linalg.cho_solve(factor, y - mean[:n])


def draw_tasks(seed: int, teacher: Teacher, support: Support) -> TrainedTasks:
    """Draw the tasks, going through the trained masks in turn (`mask_of_task`)."""
    masks = jnp.asarray(support.masks, jnp.float32)[mask_of_task(support)]
    z = jax.vmap(sample_latent)(jax.random.split(stream_key(seed, Stream.trained_tasks), NUM_TASKS), masks)
    return TrainedTasks(jax.vmap(teacher.task_weights)(z), teacher)


def mask_of_task(support: Support) -> Int[np.ndarray, "K"]:
    """The index of each task's mask among the trained masks."""
    return np.arange(NUM_TASKS) % len(support.masks)
