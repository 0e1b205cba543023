# pyright: reportMissingImports=false
"""Training steps of a PyTorch model, by PyTorch: the same episodes, schedule, clipping and weight decay as ours.

Like our own steps, they are a function of the state and the step's number. So a run resumes with the same bits, as long
as PyTorch and its number of threads stay the same.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from recombine.config.schema import Config, OptimizerConfig
from recombine.model.framework.torch_model import TorchModel, drawing_from, split_output, to_array, to_tensor
from recombine.numerics import exact_jit
from recombine.stream import Stream, stream_key
from recombine.task.episode import Episode, sample_episodes
from recombine.train.optimizer import learning_rate
from recombine.train.step import Moments, State, Steps, Tasks


class StepInputs(NamedTuple):
    """The arrays that JAX provides for one step."""

    episodes: Episode
    learning_rate: Float[Array, ""]
    random: UInt32[Array, "2"]
    """Seeds PyTorch's generator, for dropout."""


@exact_jit
def step_inputs(config: Config, seed: UInt32[Array, ""], tasks: Tasks, step: Int[Array, ""]) -> StepInputs:
    (rows, count), length = tasks.masks, config.task.episode_length
    key = stream_key(seed, Stream.train, step)
    episodes = sample_episodes(key, tasks.teacher, rows, length, config.optimizer.batch_size, 0, count)
    rate = jnp.asarray(learning_rate(config.optimizer)(step), jnp.float32)
    return StepInputs(episodes, rate, jax.random.key_data(stream_key(seed, Stream.dropout, step)))


def torch_steps(config: Config, seed: UInt32[Array, ""], tasks: Tasks, state: State, start: int, count: int) -> Steps:
    """Do `count` steps, or fewer if one is not finite."""
    import torch

    assert isinstance(state.model, TorchModel)
    module = state.model.built.training_copy()
    module.load_state_dict(state.model.tensors(), strict=False)  # what no checkpoint has keeps its initial value
    parameters = {name: value for name, value in module.named_parameters() if value.requires_grad}
    optimizer = _optimizer(config.optimizer, parameters, state.optimizer, start)
    losses, finite = [], True
    while len(losses) < count:
        inputs = step_inputs(config, seed, tasks, jnp.asarray(start + len(losses)))
        *shown, query_y = (to_tensor(array) for array in (*inputs.episodes.shown(), inputs.episodes.query_y))
        with drawing_from(inputs.random):
            y, _ = split_output(module(*shown))
            loss = ((y - query_y) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
        for value in parameters.values():
            if value.grad is None:  # not used in this step; ours have a gradient of 0 then
                value.grad = torch.zeros_like(value)
        norm = torch.linalg.vector_norm(
            torch.stack([torch.linalg.vector_norm(value.grad) for value in parameters.values()])
        )
        losses.append(loss.item())
        finite = bool(np.isfinite(losses[-1]) and norm.isfinite())
        if not finite:
            break
        if norm > config.optimizer.clip_norm:
            for value in parameters.values():
                value.grad.mul_(config.optimizer.clip_norm / norm)
        for group in optimizer.param_groups:
            group["lr"] = float(inputs.learning_rate)
        optimizer.step()
    model, done = state.model, len(losses) - (not finite)
    if done:
        stored = dict(module.named_parameters()) | dict(module.named_buffers())
        model = TorchModel(
            {name: to_array(stored[name]) for name in model.parameters},
            {name: to_array(stored[name]) for name in model.buffers},
            model.built,
        )
        moments = Moments(
            *({name: to_array(optimizer.state[value][field]) for name, value in parameters.items()} for field in FIELDS)
        )
        state = State(model, moments)
    return Steps(state, jnp.asarray(np.asarray(losses, np.float32)), jnp.asarray(done), jnp.asarray(finite))


FIELDS = Moments._fields  # the names that PyTorch gives them


def _optimizer(config: OptimizerConfig, parameters: Mapping[str, Any], moments: Any, steps: int) -> Any:
    """PyTorch's AdamW with the moments of the run. As in ours, biases, norms and tables do not decay by default."""
    import torch

    def decays(name: str) -> bool:
        return config.decay == "all" or (parameters[name].ndim >= 2 and name.rpartition(".")[2] != "table")

    groups = [
        {
            "params": [value for name, value in parameters.items() if decays(name) == kept],
            "weight_decay": config.weight_decay if kept else 0.0,
        }
        for kept in (True, False)
    ]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=config.learning_rate)
    if steps:
        for name, value in parameters.items():
            stored = {field: to_tensor(getattr(moments, field)[name]) for field in FIELDS}
            optimizer.state[value] = {"step": torch.tensor(float(steps)), **stored}
    return optimizer
