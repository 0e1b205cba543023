"""Models of the user's own: any importable class, built as `Class(config, key=key)`.

Code is imported because the command line of this very invocation names it (`import_model`), and for no other reason:
a configuration in a run directory that names a class is refused until it does.
"""

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from recombine.config import Config, OwnModelConfig
from recombine.errors import InputError
from recombine.model.fast import fast_read
from recombine.model.output import Output
from recombine.model.trunk import TrunkModel

SHIPPED = ("recombine.model.bottleneck:Bottleneck",)  # ours: to be had without being named

_imported: dict[str, Callable[..., Any]] = {}


def import_model(kind: str) -> OwnModelConfig:
    """Import `package.module:Class`, from the current directory or wherever Python finds it."""
    config = OwnModelConfig(kind)
    module_name, _, class_name = kind.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except Exception as error:  # whatever the user's module raises, it is theirs to mend
        raise InputError("model", kind, f"cannot be imported ({type(error).__name__}: {error})") from error
    if not callable(found):
        raise InputError("model", kind, "is not a class")
    _imported[kind] = found
    return config


def build_own(config: Config, *, key: jax.Array) -> Any:
    assert isinstance(config.model, OwnModelConfig)
    kind = config.model.kind
    if kind in SHIPPED and kind not in _imported:
        import_model(kind)
    if kind not in _imported:
        raise InputError("model.kind", kind, f"a class is imported only where the command names it: --model {kind}")
    return _imported[kind](config, key=key)


def check_own(config: Config) -> None:
    """Refuse, before anything is trained, a class that cannot be built or called as ours are."""
    kind = config.model.kind
    where = f"{kind} must be built by Class(config, key=key) and called as model(context_x, context_y, query_x)"
    task = config.task
    try:
        model = build_own(config, key=jax.random.key(0))
    except InputError:
        raise
    except Exception as error:
        raise InputError("model", kind, f"cannot be built ({type(error).__name__}: {error}); {where}") from error
    if not isinstance(model, eqx.Module):
        raise InputError("model", kind, f"builds a {type(model).__name__}, not an equinox.Module")
    if not any(eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(model)):
        raise InputError("model", kind, "has no parameters")
    for path, leaf in jax.tree_util.tree_leaves_with_path(model):
        if eqx.is_inexact_array(leaf) and leaf.dtype != jnp.float32:
            raise InputError("model", kind, f"parameter {jax.tree_util.keystr(path)} is {leaf.dtype}, not float32")
    pairs = task.episode_length - 1 + bool(getattr(model, "given_latent", False))
    inputs = (jnp.zeros((pairs, task.input_dim)), jnp.zeros(pairs), jnp.zeros(task.input_dim))
    try:
        if not callable(model):
            raise TypeError("it has no __call__")
        inspect.signature(model).bind(*inputs)
        output = eqx.filter_eval_shape(model, *inputs)
    except Exception as error:
        raise InputError("model", kind, f"cannot be called ({type(error).__name__}: {error}); {where}") from error
    if not isinstance(output, Output):
        raise InputError("model", kind, f"returns a {type(output).__name__}; it must return Output(y, Trace())")
    if getattr(output.y, "shape", None) != ():
        raise InputError(
            "model", kind, f"its y has shape {getattr(output.y, 'shape', None)}; it must be one number, ()"
        )
    if config.compute.path == "fast" and isinstance(model, TrunkModel):
        _check_fast_path(config, model)


def _check_fast_path(config: Config, model: TrunkModel) -> None:
    """The fast path knows `tokens` and `read_out` alone, and hands `read_out` the last token."""
    task, keys = config.task, jax.random.split(jax.random.key(1), 3)
    pairs = task.episode_length - 1 + bool(getattr(model, "given_latent", False))
    x = jax.random.normal(keys[0], (2, pairs, task.input_dim))
    y, query = jax.random.normal(keys[1], (2, pairs)), jax.random.normal(keys[2], (2, task.input_dim))
    plain = eqx.filter_jit(lambda model, *inputs: jax.vmap(model)(*inputs).y)(model, x, y, query)
    fast = eqx.filter_jit(fast_read)(model, x, y, query).y
    if not np.allclose(plain, fast, rtol=1e-3, atol=1e-4):
        raise InputError(
            "model",
            config.model.kind,
            "its read_out reads more than the last token, or it has an embed or __call__ of its own: the fast path "
            "would train another model; --set compute.path=plain",
        )
