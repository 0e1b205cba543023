# pyright: reportMissingImports=false
"""PyTorch models: a `torch.nn.Module` for a batch of episodes, behind the interface of our own models.

Its parameters are JAX arrays, so that checkpoints, exports and reports treat them like any others. PyTorch computes
with them, outside of JAX: such a model cannot be compiled, vmapped or differentiated by JAX.
"""

import copy
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recombine.checks import THREADS
from recombine.config.schema import Config
from recombine.errors import InputError
from recombine.model.interface import BatchOutput, Output, Trace
from recombine.user_class import short_error

EPISODES_AT_ONCE = 500
TRACES = {"residual": (4, "(B, points, tokens, embed)"), "latent": (2, "(B, latent)")}  # the dimensions of a batch
CALLED = "it must be called as model(context_x, context_y, query_x), of shapes (B, N−1, d), (B, N−1{}) and (B, d)"

Arrays = Mapping[str, Any]
"""By PyTorch's names. Before a checkpoint is read, there are shapes in place of arrays."""


@dataclass(frozen=True)
class TorchClass:
    """The user's class and the configuration that builds it. Equal ones share one module."""

    found: Callable[..., Any]
    config: Config

    @property
    def module(self) -> Any:
        """A module in evaluation mode, whose own parameters are never used."""
        return _module(self)

    def training_copy(self) -> Any:
        return copy.deepcopy(self.module).train()


class TorchModel(eqx.Module):
    """A `torch.nn.Module` and its parameters, for one episode as our own models are, or for a batch (`forward`)."""

    parameters: Arrays
    buffers: Arrays
    """What the module stores and does not train, such as running means."""
    built: TorchClass = eqx.field(static=True)

    def __call__(
        self, context_x: Float[Array, "context d"], context_y: Float[Array, "context *out"], query_x: Float[Array, "d"]
    ) -> Output:
        y, trace = self._compute(context_x[None], context_y[None], query_x[None])
        return Output(y[0], jax.tree.map(lambda array: array[0], trace))

    def forward(
        self,
        context_x: Float[Array, "B context d"],
        context_y: Float[Array, "B context *out"],
        query_x: Float[Array, "B d"],
    ) -> BatchOutput:
        """The predictions, the last token's residual stream and the latent."""
        found = []
        for first in range(0, len(query_x), EPISODES_AT_ONCE):
            here = slice(first, first + EPISODES_AT_ONCE)
            y, trace = self._compute(context_x[here], context_y[here], query_x[here])
            found.append(BatchOutput(y, None if trace.residual is None else trace.residual[:, :, -1], trace.latent))
        return jax.tree.map(lambda *parts: jnp.concatenate(parts), *found)

    def _compute(self, *inputs: Array) -> tuple[Array, Trace]:
        import torch

        use_threads()
        module, state = self.built.module, self.tensors()
        with torch.no_grad():
            y, trace = split_output(torch.func.functional_call(module, dict(state), tuple(map(to_tensor, inputs))))
        traced = {name: to_array(value) for name, value in vars(trace).items() if value is not None}
        return to_array(y), Trace(**traced)

    def tensors(self) -> Mapping[str, Any]:
        """Parameters and buffers, as copies for PyTorch."""
        own = dict(self.built.module.named_parameters()) | dict(self.built.module.named_buffers())
        buffers = {name: to_tensor(array).to(own[name].dtype) for name, array in self.buffers.items()}
        return {name: to_tensor(array) for name, array in self.parameters.items()} | buffers


def build_torch(found: Callable[..., Any], config: Config, key: Array) -> TorchModel:
    """The model with the parameters that PyTorch draws, seeded by the key."""
    config = replace(config, seed=0, teacher_seed=None)
    with drawing_from(key):
        module = found(config)
    return wrap_module(module, TorchClass(found, config))


def torch_shapes(found: Callable[..., Any], config: Config) -> TorchModel:
    """The model with shapes and types in place of arrays. PyTorch's `meta` device allocates nothing."""
    import torch

    config = replace(config, seed=0, teacher_seed=None)
    with torch.device("meta"):
        module = found(config)
    return wrap_module(module, TorchClass(found, config), _shape_of)


def wrap_module(module: Any, built: TorchClass, convert: Callable[[Any], Any] | None = None) -> TorchModel:
    convert = convert or to_array
    parameters = {name: value for name, value in module.named_parameters() if value.requires_grad}
    stored = {name: value for name, value in module.named_parameters() if not value.requires_grad}
    stored |= {name: value for name, value in module.named_buffers() if name in module.state_dict()}
    return TorchModel(
        {name: convert(value.detach()) for name, value in parameters.items()},
        {name: convert(value.detach()) for name, value in stored.items()},
        built,
    )


def adapt_module(module: Any) -> TorchModel:
    """A module that was built, and perhaps trained, elsewhere."""
    copied = copy.deepcopy(module).eval()
    return wrap_module(copied, TorchClass(lambda config: copied, Config()))


def check_torch(found: Callable[..., Any], config: Config) -> None:
    """Refuse a class that cannot be built, called and differentiated, or that is another model each time."""
    import torch

    kind = config.model.kind

    def refuse(said: str, error: BaseException | None = None) -> InputError:
        return InputError("model", kind, f"{said}{f' ({short_error(error)})' if error else ''}")

    if config.compute.precision != "float32":
        raise InputError("compute.precision", config.compute.precision, "float32 for a PyTorch model")
    key = jax.random.key(0)
    try:
        models = [build_torch(found, config, key) for _ in range(2)]
        torch_shapes(found, config)  # as for a run that is loaded: no value is known while the class is built
        module = models[0].built.training_copy()
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise refuse("cannot be built by Class(config)", error) from error
    model = models[0]
    if not model.parameters:
        raise refuse("has no parameters that require a gradient")
    for name, array in model.buffers.items():
        if not bool(jnp.isfinite(array).all()):
            raise refuse(f"its buffer {name} is not finite, so it cannot be saved: register it with persistent=False")
    for name, array in model.parameters.items():
        if not bool(jnp.array_equal(array, models[1].parameters[name], equal_nan=True)):
            raise refuse(f"built twice with one seed, its {name} differs: draw parameters with torch's own generator")
    rng, task = np.random.default_rng(1), config.task
    pairs, label = (3, task.episode_length - 1), task.label_shape
    shapes = ((*pairs, task.input_dim), (*pairs, *label), (3, task.input_dim))
    inputs = [torch.from_numpy(rng.standard_normal(shape).astype(np.float32)) for shape in shapes]
    try:
        with drawing_from(key):
            y, _ = split_output(module(*inputs))
        (y * torch.arange(1, 1 + y.numel()).reshape(y.shape)).sum().backward()  # a symmetric sum's gradient may vanish
        measured = [split_output(module.eval()(*(tensor[:count] for tensor in inputs))) for count in (3, 3, 1)]
        model.forward(*(to_array(tensor) for tensor in inputs))
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise refuse(f"cannot be called and differentiated; {CALLED.format(', o' if label else '')}", error) from error
    for value, trace in ((y, Trace()), *measured):
        _check_output(refuse, value, trace, len(value) if value.ndim else 0, label)
    if not any(tensor.grad is not None and tensor.grad.any() for tensor in module.parameters()):
        raise refuse("its prediction does not depend on its parameters: every gradient is 0")
    whole, again, alone = (value.detach() for value, _ in measured)
    if not torch.equal(whole, again):
        raise refuse("called twice with the same episodes, it computes different numbers: in eval(), draw none")
    if not torch.allclose(whole[:1], alone, rtol=1e-3, atol=1e-4):
        raise refuse("its prediction for an episode depends on the other episodes of the batch")


def _check_output(
    refuse: Callable[[str], InputError], y: Any, trace: Trace, count: int, label: tuple[int, ...]
) -> None:
    if tuple(y.shape) not in ((3, *label), (1, *label)):
        expected = f"(B, {label[0]})" if label else "(B,)"
        raise refuse(f"its y has shape {tuple(y.shape)} for 3 episodes; it must be {expected}")
    if not y.isfinite().all():
        raise refuse("predicts numbers that are not finite before it is trained")
    for name, (dimensions, words) in TRACES.items():
        value = getattr(trace, name)
        if value is not None and (value.ndim != dimensions or len(value) != count):
            raise refuse(f"its trace.{name} has shape {tuple(value.shape)}; it must be {words}")


def split_output(found: Any) -> tuple[Any, Trace]:
    """y and the trace of what a module returned: a tensor alone, or an `Output` with a leading axis everywhere."""
    import torch

    y, trace = found if isinstance(found, Output) else (found, Trace())
    if not isinstance(y, torch.Tensor) or not isinstance(trace, Trace):
        raise TypeError(f"it returns a {type(found).__name__}; it must return a tensor y, or Output(y, Trace(…))")
    return y, trace


def to_tensor(array: Any) -> Any:
    import torch

    return torch.from_numpy(np.array(array))  # a copy: JAX's own arrays must not be written to


def to_array(tensor: Any) -> Array:
    value = np.array(tensor.detach().numpy())  # a copy: PyTorch writes to its own
    if value.dtype == np.int64:
        value = value.astype(np.int32)  # JAX has no others by default; such buffers count batches
    if value.dtype not in (np.float32, np.int32, np.bool_):
        raise InputError("model", str(value.dtype), "parameters and buffers must be float32 (or int64 and bool)")
    return jax.device_put(value)


def _shape_of(tensor: Any) -> jax.ShapeDtypeStruct:
    names = {"int64": "int32"}
    name = str(tensor.dtype).removeprefix("torch.")
    return jax.ShapeDtypeStruct(tuple(tensor.shape), np.dtype(names.get(name, name)))


@contextmanager
def drawing_from(key: Any) -> Iterator[None]:
    """Whatever PyTorch draws inside is a function of the key (or of its two numbers) alone."""
    import torch

    high, low = np.asarray(jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key).tolist()
    use_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed((high << 32) | low)
        yield


def use_threads() -> None:
    """The threads that the command asked for. Their number affects the last bits."""
    import torch

    if (wanted := int(os.environ.get(THREADS, 0))) and torch.get_num_threads() != wanted:
        torch.set_num_threads(wanted)


@lru_cache(maxsize=32)
def _module(built: TorchClass) -> Any:
    with drawing_from(jax.random.key(0)):
        return built.found(built.config).eval()
