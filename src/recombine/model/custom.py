"""Custom models: any importable class of the user's, built as `Class(config, key=key)`.

A class is imported only if the command line of this invocation names it (`import_model`). If the configuration in a run
directory names a class that the command line does not, the run is refused.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from recombine.code_digest import model_digest
from recombine.config.model import SHIPPED, CustomModelConfig, full_kind
from recombine.config.schema import Config
from recombine.errors import InputError
from recombine.model.fast import fast_forward
from recombine.model.forward import extra_pair, takes_key
from recombine.model.framework.flax_model import adapt_flax, build_flax, check_variables
from recombine.model.framework.torch_model import adapt_module, build_torch, check_torch
from recombine.model.interface import Output, Trace
from recombine.model.trunk import TrunkModel
from recombine.model.weights import named_arrays
from recombine.numerics import exact_jit
from recombine.user_class import Framework, check_arguments, class_framework, import_class, short_error

_imported: dict[str, Callable[..., Any]] = {}


def import_model(kind: str) -> CustomModelConfig:
    """Import `package.module:Class` from the current directory, or else from wherever Python finds it."""
    kind = full_kind(kind)
    config = CustomModelConfig(kind)
    return _register(config, import_class("model", kind, config, installed=kind in SHIPPED))


def register_model(found: Any) -> CustomModelConfig:
    """Register a class that the caller already has, such as one defined in a notebook."""
    if not isinstance(found, type):
        raise InputError("model", found, "a class, a name such as transformer, or package.module:Class")
    config = CustomModelConfig(f"{found.__module__}:{found.__name__}")
    check_arguments("model", config.kind, found, config)
    return _register(config, found)


def _register(config: CustomModelConfig, found: Any) -> CustomModelConfig:
    kind = config.kind
    if _imported.get(kind, found) is not found:  # defined anew, in a notebook: programs of the old class are forgotten
        jax.clear_caches()
        model_digest.cache_clear()
    _imported[kind] = found
    return config


def build_custom(config: Config, *, key: jax.Array) -> Any:
    assert isinstance(config.model, CustomModelConfig)
    kind = config.model.kind
    if kind in SHIPPED and kind not in _imported:
        import_model(kind)
    if kind not in _imported:
        raise InputError("model.kind", kind, f"a class is imported only where the command names it: --model {kind}")
    match framework_of(kind):
        case "torch":
            return build_torch(_imported[kind], config, key)
        case "flax":
            return build_flax(_imported[kind], config, key)
        case _:
            return _imported[kind](config, key=key)


def framework_of(kind: str) -> Framework:
    """The framework of a class that was imported."""
    return class_framework(_imported.get(kind))


def torch_class(config: Config) -> Callable[..., Any] | None:
    """The class of a PyTorch model, which JAX can neither build nor compile; None for all other models."""
    return _imported[config.model.kind] if framework_of(config.model.kind) == "torch" else None


def adapted(model: Any) -> Any:
    """A model that was built elsewhere, behind the interface of our own. Only PyTorch's and Flax's need an adapter."""
    adapt = {"torch": adapt_module, "flax": adapt_flax}.get(class_framework(type(model)))
    return model if adapt is None else adapt(model)


def check_custom(config: Config) -> None:
    """Refuse a class that cannot be built, called and differentiated like our own models, before any training."""
    kind = config.model.kind
    if (found := torch_class(config)) is not None:
        check_torch(found, config)
        return
    where = f"{kind} must be built by Class(config, key=key) and called as model(context_x, context_y, query_x)"
    where += "; a model that draws random numbers in training also takes key=None"
    is_flax = framework_of(kind) == "flax"
    if is_flax:
        where = f"{kind} must be built by Class(config, rngs=rngs) and called as model(context_x, context_y, query_x)"
    try:
        model = _build(config)
        if is_flax:
            check_variables(_imported[kind], config)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError("model", kind, f"cannot be built ({short_error(error)}); {where}") from error
    if not isinstance(model, eqx.Module):
        raise InputError("model", kind, f"builds a {type(model).__name__}, not an equinox.Module")
    if not any(eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(model)):
        raise InputError("model", kind, "has no parameters")
    for path, leaf in jax.tree_util.tree_leaves_with_path(model):
        if eqx.is_inexact_array(leaf) and leaf.dtype != jnp.float32:
            raise InputError("model", kind, f"parameter {jax.tree_util.keystr(path)} is {leaf.dtype}, not float32")
        if eqx.is_array(leaf) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            name = jax.tree_util.keystr(path)
            raise InputError("model", kind, f"{name} is a random key, which cannot be saved; jax.random.key_data can")
    if extra_pair(model) == "query":
        raise InputError("model", kind, "has literal_input, and would be shown the query's label; rename the attribute")
    inputs = [array[0] for array in _two_episodes(config, model)]
    try:
        if not callable(model):
            raise TypeError("it has no __call__")
        inspect.signature(model).bind(*inputs)
        output = eqx.filter_eval_shape(model, *inputs)
        if takes_key(model):
            in_training = eqx.filter_eval_shape(lambda *inputs: model(*inputs, key=jax.random.key(2)), *inputs)
            if jax.tree.structure(in_training) != jax.tree.structure(output):
                raise TypeError("with a key, it returns something else than without")
    except (Exception, SystemExit) as error:
        raise InputError("model", kind, f"cannot be called ({short_error(error)}); {where}") from error
    if not isinstance(output, Output):
        found = "an array" if hasattr(output, "shape") else f"a {type(output).__name__}"
        raise InputError("model", kind, f"returns {found}; it must return Output(y, Trace())")
    label = config.task.label_shape
    if _shape(output.y) != label:
        raise InputError("model", kind, f"its y has shape {_shape(output.y)}; it must be {_label_words(label)}")
    _check_trace(kind, model, output.trace, inputs[2], label)
    try:
        found = _differentiate(model, inputs)
    except Exception as error:
        raise InputError("model", kind, f"cannot be differentiated ({short_error(error)})") from error
    if not np.isfinite(found.y).all():
        bad = np.ravel(found.y)[~np.isfinite(np.ravel(found.y))][0]
        raise InputError("model", kind, f"predicts {bad} before it is trained; it must be a finite number")
    if not any(np.any(leaf) for leaf in jax.tree.leaves(found.gradient)):
        raise InputError("model", kind, "its prediction does not depend on its parameters: every gradient is 0")
    if config.compute.path == "fast" and isinstance(model, TrunkModel):
        _check_fast_path(config, model)
    if kind not in SHIPPED:
        _check_repeated(config, model, inputs, found)


def _build(config: Config) -> Any:
    return exact_jit(build_custom)(config, key=jax.random.key(0))  # compiled, as for training


class _Found(NamedTuple):
    """A model's outputs for one episode: everything that training and the measures read."""

    y: jax.Array
    trace: Trace
    executed: jax.Array | None
    gradient: Any


def _differentiate(model: Any, inputs: Sequence[jax.Array]) -> _Found:
    def evaluate(model: Any) -> tuple[jax.Array, Any]:
        y, trace = model(*inputs, key=jax.random.key(2)) if takes_key(model) else model(*inputs)  # as in training
        can_execute = trace.latent is not None and hasattr(model, "execute")
        # Not a symmetric sum of the outputs, whose gradient may vanish. Integers stay integers: they have none.
        weights = jnp.arange(1, y.size + 1, dtype=y.dtype).reshape(y.shape)
        return jnp.sum(weights * y), (y, trace, model.execute(trace.latent, inputs[2]) if can_execute else None)

    (_, (y, trace, executed)), gradient = exact_jit(eqx.filter_value_and_grad(evaluate, has_aux=True))(model)
    return _Found(y, trace, executed, gradient)


def _check_repeated(config: Config, model: Any, inputs: Sequence[jax.Array], found: _Found) -> None:
    """Refuse a class that gives another model when it is built and traced again.

    What its Python code draws, or reads off the clock, becomes a constant of each compiled program: training, every
    measurement and a resumed run would each have a constant of its own.
    """
    kind = config.model.kind
    jax.clear_caches()  # nothing that was traced before is used again, not even a part that the class compiles itself
    try:
        again = _build(config)
        found_again = _differentiate(again, inputs)
    except (Exception, SystemExit) as error:
        raise InputError("model", kind, f"cannot be built and called a second time ({short_error(error)})") from error
    if different := _first_difference(model, again):
        expected = "draw parameters from the key that is given, with jax.random alone"
        raise InputError("model", kind, f"built twice with one key, its {different} differs: {expected}")
    if _first_difference(found, found_again):
        expected = "it may depend on the parameters and the arguments alone, not on other random numbers or the clock"
        raise InputError("model", kind, f"called twice with one episode, it computes different numbers: {expected}")


def _first_difference(one: Any, other: Any) -> str | None:
    """The name of an array that differs between the two in any bit. On accelerators the order of a sum may vary."""

    def same(a: np.ndarray, b: np.ndarray) -> bool:
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return False
        if jax.default_backend() == "cpu":
            return a.tobytes() == b.tobytes()
        return np.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True)

    arrays, others = named_arrays(one), named_arrays(other)
    shared = [name for name in arrays if name in others and same(arrays[name], others[name])]
    return next((name for name in arrays | others if name not in shared), None)


def _check_trace(kind: str, model: Any, trace: Any, query_x: jax.Array, label: tuple[int, ...]) -> None:
    """Check the parts that measures use: the residual stream, the latent, and `execute`."""
    if not isinstance(trace, Trace):
        raise InputError("model", kind, f"its trace is a {type(trace).__name__}; it must be a Trace, and may be empty")
    for name, dimensions, words in (("residual", 3, "(points, tokens, embed)"), ("latent", 1, "(latent,)")):
        value = getattr(trace, name)
        if value is not None and len(_shape(value) or ()) != dimensions:
            raise InputError("model", kind, f"its trace.{name} has shape {_shape(value)}; it must be {words}")
    if trace.latent is None or not hasattr(model, "execute"):
        return
    try:
        y = eqx.filter_eval_shape(lambda model, z: model.execute(z, query_x), model, trace.latent)
    except Exception as error:
        raise InputError("model", kind, f"execute(latent, x) cannot be called ({short_error(error)})") from error
    if _shape(y) != label:
        expected = _label_words(label)
        raise InputError("model", kind, f"execute(latent, x) gives shape {_shape(y)}; it must be {expected}")


def _label_words(shape: tuple[int, ...]) -> str:
    return f"one number for each output, {shape}" if shape else "one number, ()"


def _shape(value: Any) -> Any:
    return getattr(value, "shape", None)


def _two_episodes(config: Config, model: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The inputs of two random episodes, in the form that the model sees."""
    task, keys = config.task, jax.random.split(jax.random.key(1), 3)
    pairs = task.episode_length - 1 + (extra_pair(model) is not None)
    x = jax.random.normal(keys[0], (2, pairs, task.input_dim))
    return x, jax.random.normal(keys[1], (2, pairs, *task.label_shape)), jax.random.normal(keys[2], (2, task.input_dim))


def _check_fast_path(config: Config, model: TrunkModel) -> None:
    """The fast path uses only `tokens` and `read_out`, and passes `read_out` only the last token. Is that enough?"""
    inputs = _two_episodes(config, model)
    plain = exact_jit(lambda model, *inputs: jax.vmap(model)(*inputs).y)(model, *inputs)
    fast = exact_jit(fast_forward)(model, *inputs).y
    if takes_key(model) and not model.trunk.dropout:
        expected = "draws random numbers in its own __call__, which the fast path does not call: compute.path=plain"
        raise InputError("model", config.model.kind, expected)
    if not np.allclose(plain, fast, rtol=1e-3, atol=1e-4):
        raise InputError(
            "model",
            config.model.kind,
            "its read_out reads more than the last token, or it has an embed or __call__ of its own: the fast path "
            "would train another model; --set compute.path=plain",
        )
