"""The training loop: yields snapshots, and leaves measuring and storing to the caller."""

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Int, UInt32

from recombine.config.schema import Config
from recombine.errors import InputError
from recombine.model.custom import torch_class
from recombine.model.framework.torch_model import TorchModel
from recombine.numerics import exact_jit
from recombine.train.step import State, Steps, Tasks, compiled_part, train_step
from recombine.train.torch_step import torch_steps

# The number of steps per dispatch is chosen so that a dispatch takes about this long: a signal waits no longer.
SECONDS_PER_DISPATCH = 0.5
MOST_STEPS_PER_DISPATCH = 1024


class Snapshot(NamedTuple):
    """The state after `step` steps, and the losses of the steps since the last snapshot."""

    step: int
    state: State
    losses: np.ndarray


class Snapshots(NamedTuple):
    """The snapshots of several runs, and for each whether it is still finite. Runs that are not have diverged."""

    snapshots: list[Snapshot]
    finite: list[bool]


class NonFiniteLoss(ArithmeticError):
    """Training diverged: the loss or its gradient is not finite."""


def train(
    config: Config,
    tasks: Tasks,
    state: State,
    step: int,
    every: int,
    last: int | None = None,
    devices: int = 1,
) -> Iterator[Snapshot]:
    """Train from `state`, which has done `step` steps, to step `last` or the end.

    Yields a snapshot after each dispatch, including one at every multiple of `every` and one at the last step. How the
    steps are cut into dispatches depends on the clock, but changes no bit of the result.
    """
    check_devices(config, devices)
    if devices > 1:  # shard the state as a dispatch returns it; otherwise the second dispatch compiles again
        state = eqx.filter_shard(state, NamedSharding(_mesh(devices), PartitionSpec()))
    static, seed = compiled_part(config), jnp.asarray(config.seed, jnp.uint32)
    last = config.optimizer.num_steps if last is None else last
    per_dispatch = 1  # the first one also compiles
    while step < last:
        count = min(per_dispatch, last - step, every - step % every)
        started = time.monotonic()
        if isinstance(state.model, TorchModel):
            steps = torch_steps(static, seed, tasks, state, step, count)
        else:
            steps = run_steps(static, seed, tasks, state, jnp.asarray(step), jnp.asarray(count), devices)
        done, losses = int(steps.done), np.asarray(steps.losses)
        per_dispatch = _next_count(count, time.monotonic() - started, first=per_dispatch == 1)
        step, state = step + done, steps.state
        if done:
            yield Snapshot(step, state, losses[:done])
        if not steps.finite:
            raise NonFiniteLoss(
                f"step {step} was not taken: its loss is {losses[done]} or its gradient is not finite; "
                "a lower learning rate may help"
            )


def train_vmapped(
    config: Config,
    seeds: Sequence[int],
    tasks: Sequence[Tasks],
    states: Sequence[State],
    step: int,
    every: int,
    last: int,
) -> Iterator[Snapshots]:
    """Train several same-shape runs in one vmapped program: for accelerators that a single run would not fill.

    The runs differ only in `seeds`, `tasks` and `states`. A run that diverges keeps its last finite state while the
    others continue. The last bits of the results depend on the number of runs.
    """
    static, seed = compiled_part(config), jnp.asarray(seeds, jnp.uint32)
    stacked = jax.tree.map(lambda *arrays: jnp.stack(arrays), *tasks)
    arrays = jax.tree.map(lambda *arrays: jnp.stack(arrays), *(eqx.filter(state, eqx.is_array) for state in states))
    rest = eqx.filter(states[0], eqx.is_array, inverse=True)
    at, going, per_dispatch = [step] * len(seeds), [True] * len(seeds), 1
    while step < last and any(going):
        count = min(per_dispatch, last - step, every - step % every)
        started = time.monotonic()
        steps = run_steps_vmapped(static, seed, stacked, arrays, rest, jnp.asarray(step), jnp.asarray(count))
        done, losses = np.asarray(steps.done), np.asarray(steps.losses)
        per_dispatch = _next_count(count, time.monotonic() - started, first=per_dispatch == 1)
        taken = [int(many) if goes else 0 for many, goes in zip(done, going, strict=True)]
        at = [place + many for place, many in zip(at, taken, strict=True)]
        going = [goes and bool(finite) for goes, finite in zip(going, np.asarray(steps.finite), strict=True)]
        step, arrays = step + count, steps.state
        states = [eqx.combine(_row(arrays, i), rest) for i in range(len(seeds))]
        yield Snapshots([Snapshot(at[i], states[i], losses[i, : taken[i]]) for i in range(len(seeds))], going)


def _row(arrays: State, i: int) -> State:
    return jax.tree.map(lambda array: array[i], arrays)


def check_devices(config: Config, devices: int) -> None:
    there = len(jax.devices())
    if not 1 <= devices <= there:
        raise InputError("devices", devices, f"from 1 to the {there} that JAX sees here")
    if devices > 1 and torch_class(config) is not None:
        raise InputError("devices", devices, "1 for a PyTorch model, which trains on one")
    if config.optimizer.batch_size % devices:
        raise InputError("devices", devices, f"must divide optimizer.batch_size = {config.optimizer.batch_size}")


def _mesh(devices: int) -> Mesh:
    return Mesh(np.array(jax.devices()[:devices]), ("batch",))


def _next_count(count: int, seconds: float, first: bool) -> int:
    if first:
        return 2 if seconds < SECONDS_PER_DISPATCH else 1
    wanted = int(count * SECONDS_PER_DISPATCH / max(seconds, 1e-9))
    return max(1, min(wanted, 4 * count, MOST_STEPS_PER_DISPATCH))


def many_steps(
    config: Config,
    seed: UInt32[Array, ""],
    tasks: Tasks,
    state: State,
    start: Int[Array, ""],
    count: Int[Array, ""],
    devices: int = 1,
) -> Steps:
    """Do `count` steps, or fewer if one is not finite. Pure: `jax.vmap` over seed, tasks and state trains many runs."""
    arrays, rest = eqx.partition(state, eqx.is_array)

    def going(carry: tuple) -> Bool[Array, ""]:
        done, _, _, finite = carry
        return (done < count) & finite

    def step(carry: tuple) -> tuple:
        done, arrays, losses, _ = carry
        result = train_step(config, seed, tasks, eqx.combine(arrays, rest), start + done, devices)
        arrays = eqx.filter(result.state, eqx.is_array)
        return done + result.finite, arrays, losses.at[done].set(result.loss), result.finite

    losses = jnp.zeros(MOST_STEPS_PER_DISPATCH, jnp.float32)
    carry = (jnp.zeros((), start.dtype), arrays, losses, jnp.asarray(True))
    done, arrays, losses, finite = jax.lax.while_loop(going, step, carry)
    return Steps(eqx.combine(arrays, rest), losses, done, finite)


@exact_jit
def run_steps(
    config: Config,
    seed: UInt32[Array, ""],
    tasks: Tasks,
    state: State,
    start: Int[Array, ""],
    count: Int[Array, ""],
    devices: int = 1,
) -> Steps:
    """`many_steps` in one dispatch. With several devices, each computes its share of the batch."""
    if devices == 1:
        return many_steps(config, seed, tasks, state, start, count)
    arrays, rest = eqx.partition(state, eqx.is_array)

    def share(seed, tasks, arrays, start, count):
        steps = many_steps(config, seed, tasks, eqx.combine(arrays, rest), start, count, devices)
        return steps._replace(state=eqx.filter(steps.state, eqx.is_array))

    # Every device ends with the same state, because the averaged gradient is the same on each. JAX cannot check that.
    everywhere = PartitionSpec()
    sharded = jax.shard_map(share, mesh=_mesh(devices), in_specs=everywhere, out_specs=everywhere, check_vma=False)
    steps = sharded(seed, tasks, arrays, start, count)
    return steps._replace(state=eqx.combine(steps.state, rest))


@exact_jit
def run_steps_vmapped(
    config: Config,
    seeds: UInt32[Array, "S"],
    tasks: Tasks,
    arrays: State,
    rest: State,
    start: Int[Array, ""],
    count: Int[Array, ""],
) -> Steps:
    """`many_steps` of several runs in one dispatch. `tasks` and `arrays` have a leading axis; `rest` is shared."""

    def each(seed, tasks, arrays):
        steps = many_steps(config, seed, tasks, eqx.combine(arrays, rest), start, count)
        return steps._replace(state=eqx.filter(steps.state, eqx.is_array))

    return jax.vmap(each)(seeds, tasks, arrays)
