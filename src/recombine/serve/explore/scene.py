"""A task that somebody composes, and what is shown of it: context, queries and a line.

The shapes of everything are settled beforehand (a few context lengths, a number of queries), so that a model is
compiled once for each length and then answers in milliseconds.
"""

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recombine.checks import check_number, check_seed
from recombine.errors import InputError
from recombine.stream import Stream, stream_key
from recombine.support.mask import Mask
from recombine.task.episode import sample_input
from recombine.task.teacher import Teacher, init_teacher

NUM_QUERIES = 160  # inputs on which a task's R² is measured
NUM_READ = 32  # of them, on which the latent is decoded: a transformer's residual stream is another for each
NUM_SLICE = 61  # points along a line through input space
REACH = sqrt(3)  # inputs are uniform on [−√3, √3] in every entry

_init_teacher = eqx.filter_jit(init_teacher)


def context_lengths(trained_on: int) -> list[int]:
    """The numbers of context examples that can be chosen: a few below what the model trained on, and some above."""
    few = [1, 2, 3, 4, 6, 8, 11, 15, 19, 23, 27, 31, 47, 63, 95, 127]
    return sorted({n for n in few if n <= 2 * trained_on} | {trained_on - 1})


@dataclass(frozen=True)
class Task:
    """A task that somebody composed."""

    weights: tuple[float, ...]
    """Of the modules, 0 for those that it does not use."""
    length: int
    """How many context examples it is shown with."""
    draw: int = 0
    """Draws the context, the queries and the line."""
    fresh: int | None = None
    """Draws a teacher that no run was trained on: the control."""
    teacher_of: int = 0
    """Which of the runs' teachers labels it."""
    direction: int = 0
    """Of the line through input space: an axis from 1, or 0 for a random one."""

    def __post_init__(self) -> None:
        for weight in self.weights:
            check_number("weights", weight, least=0.0)
        if not any(weight > 0 for weight in self.weights):
            raise InputError("weights", list(self.weights), "at least one module must be active")
        check_seed("draw", self.draw)
        if self.fresh is not None:
            check_seed("fresh", self.fresh)

    @property
    def mask(self) -> Mask:
        return tuple(int(weight > 0) for weight in self.weights)

    @property
    def latent(self) -> Float[Array, "M"]:
        """As Algorithm 1 makes it from a point of the simplex: half-way to the mask's corner."""
        weights = np.asarray(self.weights, np.float64)  # so small a weight may be the only one
        return jnp.asarray(0.5 * (weights / weights.sum() + np.asarray(self.mask)), jnp.float32)


class Scene(NamedTuple):
    """A context, queries and a line, all labelled."""

    context_x: Float[Array, "n d"]
    context_y: Float[Array, "n"]
    query_x: Float[Array, "Q d"]
    query_y: Float[Array, "Q"]
    slice_x: Float[Array, "S d"]
    slice_y: Float[Array, "S"]
    slice_t: Float[Array, "S"]
    direction: Float[Array, "d"]


def make_scene(task: Task, teacher: Teacher) -> Scene:
    """The context's examples are the first of a longer list: with more of them, those that were there stay."""
    return _draw(stream_key(task.draw, Stream.explore), teacher, task.latent, task.length, jnp.asarray(task.direction))


@eqx.filter_jit
def _draw(key: Array, teacher: Teacher, z: Float[Array, "M"], length: int, axis: Array) -> Scene:
    input_dim = teacher.theta.shape[-1]
    context_key, query_key, direction_key, base_key = jax.random.split(key, 4)
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(context_key, jnp.arange(length, dtype=jnp.uint32))
    context_x = jax.vmap(lambda key: sample_input(key, (input_dim,)))(keys)
    query_x = sample_input(query_key, (NUM_QUERIES, input_dim))
    random = jax.random.normal(direction_key, (input_dim,), jnp.float32)
    axes = jnp.concatenate([(random / jnp.linalg.norm(random))[None], jnp.eye(input_dim, dtype=jnp.float32)])
    direction = axes[axis]
    slice_t = jnp.linspace(-REACH, REACH, NUM_SLICE, dtype=jnp.float32)
    base = sample_input(base_key, (input_dim,))  # a line through the origin would be unlike the inputs of training
    slice_x = base - (base @ direction) * direction + slice_t[:, None] * direction
    return Scene(
        context_x,
        teacher.label(z, context_x),
        query_x,
        teacher.label(z, query_x),
        slice_x,
        teacher.label(z, slice_x),
        slice_t,
        direction,
    )


def fresh_teacher(seed: int, like: Teacher) -> Teacher:
    """One of the same sizes that no run was trained on."""
    num_modules, hidden_dim, input_dim = like.theta.shape
    return _init_teacher(stream_key(seed, Stream.explore, 1), num_modules, input_dim, hidden_dim)
