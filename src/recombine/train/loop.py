"""The training loop: yields snapshots, and leaves measuring and storing to the caller."""

from collections.abc import Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recombine.config import Config
from recombine.model.build import Model
from recombine.task.teacher import Teacher
from recombine.train.step import State, init_state, train_step


class Snapshot(NamedTuple):
    """The model after `step` steps, and the losses since the last snapshot."""

    step: int
    model: Model
    losses: np.ndarray


class NonFiniteLoss(ArithmeticError):
    """Training diverged."""


def train(config: Config, teacher: Teacher, every: int) -> Iterator[Snapshot]:
    """Train from scratch; a snapshot every `every` steps, and one at the end."""
    state = init_state(config)
    step, last = 0, config.optimizer.num_steps
    while step < last:
        count = min(every, last - step)
        state, losses = _run_steps(config, teacher, state, jnp.asarray(step), count)
        losses = np.asarray(losses)
        if not np.isfinite(losses).all():
            at = step + int(np.flatnonzero(~np.isfinite(losses))[0])
            raise NonFiniteLoss(f"the loss of step {at} is {losses[at - step]}; a lower learning rate may help")
        step += count
        yield Snapshot(step, state.model, losses)


@eqx.filter_jit
def _run_steps(
    config: Config, teacher: Teacher, state: State, start: Array, count: int
) -> tuple[State, Float[Array, "count"]]:
    """`count` steps in one dispatch."""
    arrays, rest = eqx.partition(state, eqx.is_array)

    def step(arrays, index):
        state, loss = train_step(config, teacher, eqx.combine(arrays, rest), index)
        return eqx.filter(state, eqx.is_array), loss

    arrays, losses = jax.lax.scan(step, arrays, start + jnp.arange(count))
    return eqx.combine(arrays, rest), losses
