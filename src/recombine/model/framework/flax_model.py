# pyright: reportMissingImports=false
"""Flax NNX models: an `nnx.Module` for one episode, behind the interface of our own models.

Flax computes with JAX and is trained with Optax. So such a model takes our own training step; only its parameters,
the `nnx.Param`s, are taken out of the module, which is put together again for every call.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key

from recombine.config.schema import Config, MeasureConfig
from recombine.errors import InputError
from recombine.model.interface import Output, Trace
from recombine.support.support import Support


@dataclass(frozen=True)
class FlaxClass:
    """The user's class and the configuration that builds it."""

    found: Callable[..., Any]
    config: Config


class FlaxModel(eqx.Module):
    """An `nnx.Module` that draws no random numbers when it is called, and its parameters."""

    parameters: dict[Any, Any]
    built: FlaxClass = eqx.field(static=True)

    def __call__(
        self, context_x: Float[Array, "context d"], context_y: Float[Array, "context *out"], query_x: Float[Array, "d"]
    ) -> Output:
        return _call(self.parameters, self.built, None, context_x, context_y, query_x)


class DrawingFlaxModel(FlaxModel):
    """An `nnx.Module` that draws random numbers while it is trained (dropout, say)."""

    def __call__(
        self,
        context_x: Float[Array, "context d"],
        context_y: Float[Array, "context *out"],
        query_x: Float[Array, "d"],
        *,
        key: Key[Array, ""] | None = None,
    ) -> Output:
        return _call(self.parameters, self.built, key, context_x, context_y, query_x)


def build_flax(found: Callable[..., Any], config: Config, key: Key[Array, ""]) -> FlaxModel:
    """The model with the parameters that `Class(config, rngs=nnx.Rngs(key))` draws."""
    from flax import nnx

    built = FlaxClass(found, _without_data(config))
    _, parameters, _ = nnx.split(found(built.config, rngs=nnx.Rngs(key)), nnx.Param, ...)
    kind = DrawingFlaxModel if jax.tree.leaves(_skeleton(built)[2]) else FlaxModel
    return kind(nnx.to_pure_dict(parameters), built)


def _without_data(config: Config) -> Config:
    """The configuration without what differs between runs of one shape: seeds, masks and measurements."""
    any_masks = Support("", ((1,) * config.task.num_modules,), ())
    task = replace(config.task, support=any_masks)
    return replace(config, seed=0, teacher_seed=None, measure=MeasureConfig(), task=task)


def adapt_flax(module: Any) -> FlaxModel:
    """A module that was built, and perhaps trained, elsewhere."""
    from flax import nnx

    return build_flax(lambda config, rngs: nnx.clone(module), Config(), jax.random.key(0))


def check_variables(found: Callable[..., Any], config: Config) -> None:
    """Refuse a module that keeps numbers which are neither trained nor the same in every module of the class."""
    from flax import nnx

    one, other = (nnx.split(found(config, rngs=nnx.Rngs(seed)), nnx.Param, nnx.RngState, ...)[3] for seed in (0, 1))
    for (name, value), (_, again) in zip(_named(one), _named(other), strict=True):
        if not np.array_equal(value, again):
            wanted = "is drawn at random but is no nnx.Param, so it would not be saved; make it one, or draw none"
            raise InputError("model", config.model.kind, f"its {name} {wanted}")
    for name, leaf in nnx.to_flat_state(cast(Any, one)):
        if isinstance(leaf, nnx.BatchStat | nnx.Cache):
            name, what = ".".join(map(str, name)), "changes from call to call, which a model for one episode cannot"
            raise InputError("model", config.model.kind, f"its {name} ({type(leaf).__name__}) {what}")


def _call(parameters: Any, built: FlaxClass, key: Array | None, *inputs: Array) -> Output:
    from flax import nnx

    graph, rest, random = _skeleton(built)
    module = nnx.merge(graph, parameters, random, rest)
    if key is None:
        module.eval()
    else:
        module.train()
        nnx.reseed(module, default=key)
    found = module(*inputs)
    return found if isinstance(found, Output) or not hasattr(found, "shape") else Output(found, Trace())


@lru_cache(maxsize=32)
def _skeleton(built: FlaxClass) -> tuple[Any, Any, Any]:
    """The module without its parameters: its structure, its constants, and the state of its random numbers."""
    from flax import nnx

    with jax.ensure_compile_time_eval():  # it may be asked for while a program is traced
        module = built.found(built.config, rngs=nnx.Rngs(0))
        graph, _, random, rest = nnx.split(module, nnx.Param, nnx.RngState, ...)
        return graph, nnx.to_pure_dict(rest), nnx.to_pure_dict(random)


def _named(state: Any) -> Iterator[tuple[str, np.ndarray]]:
    from flax import nnx

    for path, leaf in jax.tree.flatten_with_path(nnx.to_pure_dict(state))[0]:
        yield jax.tree_util.keystr(path, simple=True, separator="."), np.asarray(leaf)
