"""The references with which every score is compared: functions `reference(teacher, episode) -> y`.

A model's R² is meaningful only relative to them. Tasks are mostly linear, so ridge regression on the context is already
a strong baseline. The oracle is an upper reference: it knows the teacher, and infers only the latent.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from recombine.measure.predict import CHUNK, chunk_of, map_in_chunks
from recombine.measure.reference.choose_noise import choose_noise
from recombine.measure.reference.oracle import oracle
from recombine.measure.reference.trained_tasks import TrainedCovariance, TrainedTask, draw_tasks
from recombine.measure.ridge import fit_ridge
from recombine.numerics import exact_jit
from recombine.record.reference import REFERENCE_NAMES
from recombine.stream import Stream, stream_key
from recombine.support.split import Split
from recombine.support.support import Support
from recombine.task.episode import Episode
from recombine.task.sample import teacher_axis
from recombine.task.teacher import HypernetworkTeacher, Teacher, Weights, init_teacher, task_network

Reference = Callable[[Teacher, Episode], Float[Array, "*out"]]

RIDGE_STRENGTH = 1.0
NUM_NEIGHBOURS = 5
FIT_STEPS = 200
FIT_LEARNING_RATE = 0.03
FIT_WEIGHT_DECAY = 0.3


def context_mean(teacher: Teacher, episode: Episode) -> Float[Array, "*out"]:
    """The mean label of the context: R² = 0 by definition."""
    return episode.context_y.mean(axis=0)


def ridge(teacher: Teacher, episode: Episode) -> Float[Array, "*out"]:
    """Ridge regression on the context, with an intercept. Each output is fitted alone."""
    x, y = episode.context_x, episode.context_y
    return fit_ridge(x, y.reshape(len(y), -1), RIDGE_STRENGTH)(episode.query_x).reshape(y.shape[1:])


def nearest_neighbours(teacher: Teacher, episode: Episode) -> Float[Array, "*out"]:
    """The mean label of the context inputs nearest to the query."""
    distance = jnp.sum((episode.context_x - episode.query_x) ** 2, axis=-1)
    _, nearest = jax.lax.top_k(-distance, min(NUM_NEIGHBOURS, len(distance)))
    return episode.context_y[nearest].mean(axis=0)


def fitted_network(teacher: Teacher, episode: Episode) -> Float[Array, "*out"]:
    """A task network of the teacher's size, with W and a both fitted to the context by AdamW.

    The teacher of a user's class has no network: the paper's takes its place.
    """
    key = stream_key(0, Stream.reference)
    if isinstance(teacher, HypernetworkTeacher):
        fresh = teacher.redraw(key)
    else:
        sizes = (teacher.num_modules, teacher.input_dim, teacher.hidden_dim)
        fresh = init_teacher(key, *sizes, label_shape=teacher.label_shape)
    start = (fresh.task_weights(jnp.ones(teacher.num_modules)), fresh.a)
    start = jax.tree.map(lambda weights: weights.astype(episode.context_x.dtype), start)
    optimizer = optax.adamw(FIT_LEARNING_RATE, weight_decay=FIT_WEIGHT_DECAY)

    def loss(parameters: tuple[Weights, Array]) -> Float[Array, ""]:
        W, a = parameters
        return jnp.mean((task_network(W, a, episode.context_x, fresh.activation) - episode.context_y) ** 2)

    def step(_, carry):
        parameters, state = carry
        updates, state = optimizer.update(jax.grad(loss)(parameters), state, parameters)
        return optax.apply_updates(parameters, updates), state

    parameters, _ = jax.lax.fori_loop(0, FIT_STEPS, step, (start, optimizer.init(start)))
    W, a = parameters
    return task_network(W, a, episode.query_x, fresh.activation)


def known_latent(teacher: Teacher, episode: Episode) -> Float[Array, "*out"]:
    """The true task: R² = 1."""
    return teacher.label(episode.latent, episode.query_x)


def make_references(
    seed: int, teacher: Teacher, support: Support, length: int, names: Sequence[str] = REFERENCE_NAMES
) -> dict[str, Reference]:
    """The named references, for a seed, a support and episodes of a length."""
    tasks = draw_tasks(seed, teacher, support)
    found: dict[str, Reference] = {
        "context_mean": context_mean,
        "nearest_neighbours": nearest_neighbours,
        "ridge": ridge,
        "fitted_network": fitted_network,
        "trained_task": TrainedTask(tasks.W, tasks.teacher),
        "oracle": oracle,
        "known_latent": known_latent,
    }
    if "trained_covariance" in names:  # choosing its noise takes seconds
        noise = choose_noise(seed, teacher, support, length, tasks)
        found["trained_covariance"] = TrainedCovariance(tasks.W, tasks.teacher, noise)
    return {name: found[name] for name in names}


def predict_reference(reference: Reference, teacher: Teacher, episodes: Episode, split: Split) -> np.ndarray:
    """The reference's prediction for every episode, computed in float64."""
    with jax.enable_x64(True):
        reference, teacher, episodes = jax.tree.map(_widen, (reference, teacher, episodes))
        return np.asarray(_predict(reference, teacher, episodes, one_teacher=teacher_axis(split) is None))


@exact_jit
def _predict(reference: Reference, teacher: Teacher, episodes: Episode, one_teacher: bool) -> Float[Array, "E *out"]:
    # The map is over every argument. Where all episodes share one teacher, it is closed over instead.
    most = chunk_of(teacher.label_shape) if isinstance(reference, TrainedCovariance) else CHUNK
    if one_teacher:
        return map_in_chunks(lambda e: reference(teacher, e), episodes, most)
    return map_in_chunks(lambda pair: reference(*pair), (teacher, episodes), most)


def _widen(leaf: Any) -> Any:
    if not eqx.is_array(leaf):
        return leaf  # a function
    return np.asarray(leaf, np.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else np.asarray(leaf)
