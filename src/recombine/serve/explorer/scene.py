"""The scene of a composed task: a context, queries and a line through input space.

The shapes are fixed beforehand (a few context lengths, one number of queries), so that a model is compiled once for
each length and then answers in milliseconds. One program for all lengths would need a padded context and a mask, which
the contract of a custom model does not have. Models that the page runs itself need no program here.
"""

from math import sqrt
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recombine.config.task import InputDistribution
from recombine.serve.explorer.exchange import ComposedTask, Inputs
from recombine.stream import Stream, stream_key
from recombine.task.episode import sample_input
from recombine.task.teacher import Teacher

NUM_QUERIES = 64  # inputs on which a task's R² is measured: as many as in the story
NUM_READ = 32  # queries on which the latent is decoded: a transformer's residual stream differs between queries
NUM_SLICE = 33  # points along a line through input space
REACH = sqrt(3)  # inputs are uniform on [−√3, √3] in every entry

_redraw = eqx.filter_jit(lambda teacher, key: teacher.redraw(key))


def task_latent(task: ComposedTask) -> Float[Array, "M"]:
    """The latent that Algorithm 1 makes from a point of the simplex: its average with the mask."""
    weights = np.asarray(task.weights, np.float64)  # a single weight may be too small for float32
    return jnp.asarray(0.5 * (weights / weights.sum() + np.asarray(task.mask)), jnp.float32)


class Scene(NamedTuple):
    """A context, queries and a line, with their labels."""

    context_x: Float[Array, "n d"]
    context_y: Float[Array, "n"]
    query_x: Float[Array, "Q d"]
    query_y: Float[Array, "Q"]
    slice_x: Float[Array, "S d"]
    slice_y: Float[Array, "S"]
    slice_t: Float[Array, "S"]
    direction: Float[Array, "d"]


def make_scene(task: ComposedTask, teacher: Teacher) -> Scene:
    """The scene of a task. A longer context keeps the examples of a shorter one."""
    key, axis = stream_key(task.draw, Stream.explore), jnp.asarray(task.direction)
    return _draw(key, teacher, task_latent(task), task.length, axis)


def scene_inputs(inputs: Inputs, teacher: Teacher, length: int) -> tuple[Array, Array, Array]:
    """The context's inputs, the queries, and a point of the line: those of `make_scene` for the same draw."""
    key = stream_key(inputs.draw, Stream.explore)
    return _draw_inputs(key, teacher.input_dim, teacher.input_distribution, length)[:3]


def _draw_inputs(
    key: Array, input_dim: int, distribution: InputDistribution, length: int
) -> tuple[Array, Array, Array, Array]:
    context_key, query_key, _, base_key = jax.random.split(key, 4)
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(context_key, jnp.arange(length, dtype=jnp.uint32))
    context_x = jax.vmap(lambda key: sample_input(key, (input_dim,), distribution))(keys)
    query_x = sample_input(query_key, (NUM_QUERIES, input_dim), distribution)
    # A line through the origin would be unlike the inputs of training.
    return context_x, query_x, sample_input(base_key, (input_dim,), distribution), keys


@eqx.filter_jit
def _draw(key: Array, teacher: Teacher, z: Float[Array, "M"], length: int, axis: Array) -> Scene:
    context_x, query_x, base, keys = _draw_inputs(key, teacher.input_dim, teacher.input_distribution, length)
    steepest = jax.grad(lambda x: teacher.label(z, x))(base)  # in a random direction, a task may be flat
    norm = jnp.maximum(jnp.linalg.norm(steepest), 1e-12)
    axes = jnp.concatenate([(steepest / norm)[None], jnp.eye(teacher.input_dim, dtype=jnp.float32)])
    direction = axes[axis]
    slice_t = jnp.linspace(-REACH, REACH, NUM_SLICE, dtype=jnp.float32)
    slice_x = base - (base @ direction) * direction + slice_t[:, None] * direction
    context_y = teacher.label(z, context_x)
    if teacher.label_noise:
        noise = jax.vmap(lambda key: jax.random.normal(jax.random.fold_in(key, 1), (), jnp.float32))(keys)
        context_y = context_y + teacher.label_noise * noise
    return Scene(
        context_x,
        context_y,
        query_x,
        teacher.label(z, query_x),
        slice_x,
        teacher.label(z, slice_x),
        slice_t,
        direction,
    )


def fresh_teacher(seed: int, like: Teacher) -> Teacher:
    """A teacher of the same sizes that no run was trained on."""
    return _redraw(like, stream_key(seed, Stream.explore, 1))
