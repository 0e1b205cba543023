"""One training step, as a pure function of the state and the step's number.

Paper: Section 2, "In-context learning": the mean squared error at the query; Appendix C.2: x and z sampled online.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from recombine.config import Config
from recombine.model.build import Model, build_model
from recombine.stream import Stream, stream_key
from recombine.task.episode import Episode, sample_episodes
from recombine.task.split import mask_array, run_teacher
from recombine.task.teacher import Teacher
from recombine.train.optimizer import make_optimizer


class State(NamedTuple):
    """All that changes while training."""

    model: Model
    optimizer: optax.OptState


def config_teacher(config: Config) -> Teacher:
    """The teacher of a run."""
    task = config.task
    seed = config.seed if config.teacher_seed is None else config.teacher_seed
    return run_teacher(seed, task.support, task.input_dim, task.hidden_dim)


def init_state(config: Config) -> State:
    # Compiled as a whole: drawing the arrays one by one compiles each of them.
    model = eqx.filter_jit(build_model)(config, key=stream_key(config.seed, Stream.init))
    return State(model, make_optimizer(config.optimizer).init(eqx.filter(model, eqx.is_inexact_array)))


def query_loss(model: Model, episodes: Episode) -> Float[Array, ""]:
    """The mean squared error of the predicted query labels."""
    output = jax.vmap(model)(episodes.context_x, episodes.context_y, episodes.query_x)
    return jnp.mean((output.y - episodes.query_y) ** 2)


def train_step(config: Config, teacher: Teacher, state: State, step: Int[Array, ""]) -> tuple[State, Float[Array, ""]]:
    """Sample the step's episodes, take the gradient, update. Returns the new state and the loss before it."""
    key = stream_key(config.seed, Stream.train, step)
    masks = mask_array(config.task.support, "train")
    episodes = sample_episodes(key, teacher, masks, config.task.episode_length, config.optimizer.batch_size)
    loss, gradient = eqx.filter_value_and_grad(query_loss)(state.model, episodes)
    updates, optimizer_state = make_optimizer(config.optimizer).update(
        gradient, state.optimizer, eqx.filter(state.model, eqx.is_inexact_array)
    )
    return State(eqx.apply_updates(state.model, updates), optimizer_state), loss
