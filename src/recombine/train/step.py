"""One training step, as a pure function of the state and the step's number.

Paper: Section 2, "In-context learning": the mean squared error at the query; Appendix C.2: x and z sampled online.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from recombine.config.schema import ComputeConfig, Config, MeasureConfig
from recombine.model.build import build_model
from recombine.model.custom import torch_class
from recombine.model.forward import PLAIN, extra_pair, matmul_precision, predict_batch, takes_key
from recombine.model.framework.torch_model import Arrays, TorchModel, torch_shapes
from recombine.model.interface import Model
from recombine.model.trunk import TrunkModel
from recombine.numerics import exact_jit
from recombine.stream import Stream, stream_key
from recombine.support.support import Support
from recombine.task.episode import Episode, episode_keys, sample_episodes
from recombine.task.sample import MaskRows, mask_rows
from recombine.task.teacher import Teacher, config_teacher
from recombine.train.dream import Dreams, dream, fixed_decoder, sample_dreams, without_decoder
from recombine.train.optimizer import make_optimizer

# On a CPU the batch is processed in pieces whose residual stream has about this many numbers (1,024 tokens of the
# paper's transformer). Their intermediate results stay in the cache, which is faster and needs a fraction of the
# memory. Accelerators process the whole batch at once.
NUMBERS_AT_ONCE = 2**17
USUAL_WIDTH = 64  # assumed for a model that has no trunk


class Moments(NamedTuple):
    """The state of PyTorch's AdamW. Its number of steps is that of the run."""

    exp_avg: Arrays
    exp_avg_sq: Arrays


def init_moments(model: TorchModel) -> Moments:
    def zeros(array: Array | jax.ShapeDtypeStruct) -> Array | jax.ShapeDtypeStruct:
        return array if isinstance(array, jax.ShapeDtypeStruct) else jnp.zeros_like(array)

    return Moments(*({name: zeros(array) for name, array in model.parameters.items()} for _ in Moments._fields))


class State(NamedTuple):
    """Everything that training changes."""

    model: Model
    optimizer: Any
    """Optax's state, or PyTorch's (`Moments`)."""


class StepResult(NamedTuple):
    """The state after a step, and the loss before the update. If loss or gradient is not finite, there is no update."""

    state: State
    loss: Float[Array, ""]
    finite: Bool[Array, ""]


class Steps(NamedTuple):
    """The result of a dispatch: the state, the number of steps done, and their losses (then any non-finite one)."""

    state: State
    losses: Float[Array, "most"]
    done: Int[Array, ""]
    finite: Bool[Array, ""]


class Tasks(NamedTuple):
    """The teacher and the masks from which the training episodes are drawn."""

    teacher: Teacher
    masks: MaskRows


def config_tasks(config: Config) -> Tasks:
    return Tasks(config_teacher(config), mask_rows(config.task.support.masks))


def compiled_part(config: Config) -> Config:
    """The configuration without the fields that a compiled step does not depend on: all seeds and supports share it."""
    any_masks = Support("", ((1,) * config.task.num_modules,), ())
    task = replace(config.task, support=any_masks)
    train = replace(config.train, start_from=None if config.train.dream is None else "any run")
    return replace(config, seed=0, teacher_seed=None, measure=MeasureConfig(), task=task, train=train)


def init_state(config: Config) -> State:
    if torch_class(config) is not None:
        model = build_model(config, key=stream_key(config.seed, Stream.init))
        assert isinstance(model, TorchModel)
        return State(model, init_moments(model))
    # One compiled program: drawing the arrays one by one would compile each of them.
    static = replace(config, seed=0, teacher_seed=None)
    model = exact_jit(build_model)(static, key=stream_key(config.seed, Stream.init))
    return State(model, make_optimizer(config.optimizer).init(eqx.filter(model, eqx.is_inexact_array)))


def state_shapes(config: Config) -> State:
    """The state of a run with shapes and types in place of arrays. Nothing is allocated.

    Loading compares the stored arrays with these first: a small configuration file can ask for a model of any size.
    """
    if (found := torch_class(config)) is not None:
        model = torch_shapes(found, config)
        return State(model, init_moments(model))
    return eqx.filter_eval_shape(init_state, config)


def query_loss(
    model: Model, episodes: Episode, compute: ComputeConfig = PLAIN, keys: Key[Array, "B"] | None = None
) -> Float[Array, ""]:
    """The mean squared error of the predicted query labels, over episodes and outputs."""
    y = predict_batch(model, *episodes.shown(extra_pair(model)), compute, keys)
    return jnp.mean((y - episodes.query_y) ** 2)


def train_step(
    config: Config,
    seed: UInt32[Array, ""],
    tasks: Tasks,
    state: State,
    step: Int[Array, ""],
    devices: int = 1,
) -> StepResult:
    """Sample the episodes of the step, compute the gradient, update.

    With several devices this is one device's part of the step, inside a `shard_map` over the axis "batch": the device
    samples its share of the episodes and computes their gradient, and the gradients are averaged.
    """
    share = config.optimizer.batch_size // devices
    first = jax.lax.axis_index("batch") * share if devices > 1 else 0
    key = stream_key(seed, Stream.train, step)
    (rows, count), length = tasks.masks, config.task.episode_length
    episodes = sample_episodes(key, tasks.teacher, rows, length, share, first, count)
    keys = None
    if takes_key(state.model):
        keys = episode_keys(stream_key(seed, Stream.dropout, step), share, first)
    dreams = None
    if config.train.dream:
        dream_key = stream_key(seed, Stream.dream, step)
        dreams = sample_dreams(dream_key, config, tasks.teacher, rows, count, share, first)
    loss, gradient = _loss_and_gradient(config, state.model, episodes, keys, dreams, tasks.teacher)
    if devices > 1:
        flat, unflatten = ravel_pytree((loss, gradient))  # one exchange between devices, not one per parameter
        loss, gradient = unflatten(jax.lax.pmean(flat, "batch"))
    finite = jnp.isfinite(loss) & jnp.isfinite(optax.tree.norm(gradient))
    parameters, rest = eqx.partition(state.model, eqx.is_inexact_array)

    def update() -> tuple:
        updates, optimizer = make_optimizer(config.optimizer).update(gradient, state.optimizer, parameters)
        updates = updates if config.train.dream is None else without_decoder(updates)  # no weight decay either
        return optax.apply_updates(parameters, updates), optimizer

    parameters, optimizer = jax.lax.cond(finite, update, lambda: (parameters, state.optimizer))
    return StepResult(State(eqx.combine(parameters, rest), optimizer), loss, finite)


def _loss_and_gradient(
    config: Config,
    model: Model,
    episodes: Episode,
    keys: Key[Array, "B"] | None = None,
    dreams: Dreams | None = None,
    teacher: Teacher | None = None,
) -> tuple[Float[Array, ""], optax.Updates]:
    """The loss and its gradient over the batch, computed in pieces of equal size. With `dreams`, some are dreamed."""

    def loss(model: Model, *arguments: Any) -> Float[Array, ""]:
        return query_loss(fixed_decoder(model), *arguments)

    def loss_and_gradient(
        model: Model, episodes: Episode, keys: Key[Array, "B"] | None, dreams: Dreams | None
    ) -> tuple[Float[Array, ""], optax.Updates]:
        if dreams is not None:
            assert teacher is not None
            episodes = dream(config, model, teacher, episodes, dreams)
        with matmul_precision(config.compute):
            differentiated = query_loss if config.train.dream is None else loss
            return eqx.filter_value_and_grad(differentiated)(model, episodes, config.compute, keys)

    width = model.trunk.embedding.weight.shape[1] if isinstance(model, TrunkModel) else USUAL_WIDTH
    num_pieces = _num_pieces(len(episodes.query_y), config.task.episode_length * width)
    if num_pieces == 1:
        return loss_and_gradient(model, episodes, keys, dreams)
    pieces = jax.tree.map(lambda array: array.reshape(num_pieces, -1, *array.shape[1:]), (episodes, keys, dreams))

    def add(total: tuple, piece: tuple) -> tuple[tuple, None]:
        return jax.tree.map(jnp.add, total, loss_and_gradient(model, *piece)), None

    zeros = (jnp.zeros((), jnp.float32), jax.tree.map(jnp.zeros_like, eqx.filter(model, eqx.is_inexact_array)))
    total, _ = jax.lax.scan(add, zeros, pieces)
    return jax.tree.map(lambda sum_: sum_ / num_pieces, total)


def _num_pieces(num_episodes: int, episode_size: int) -> int:
    if jax.default_backend() != "cpu":
        return 1
    most = max(1, NUMBERS_AT_ONCE // episode_size)
    pieces = next(n for n in range(1, num_episodes + 1) if num_episodes % n == 0 and num_episodes // n <= most)
    # A prime number of episodes only divides into single ones, which cost more time than they save.
    return pieces if pieces == 1 or 4 * (num_episodes // pieces) >= most else 1
