"""From a configuration to a model, and what a model must be able to do."""

from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
from jaxtyping import Array, Float, Key

from recombine.config import Config, HypertransformerConfig, OwnModelConfig, TransformerConfig
from recombine.model.hypertransformer import Hypertransformer
from recombine.model.output import Output
from recombine.model.own import build_own
from recombine.model.transformer import Transformer


@runtime_checkable
class Model(Protocol):
    """One episode in, a prediction out. The query's label is not among the arguments, so it cannot leak."""

    def __call__(
        self,
        context_x: Float[Array, "context d"],
        context_y: Float[Array, "context"],
        query_x: Float[Array, "d"],
    ) -> Output: ...


def build_model(config: Config, *, key: Key[Array, ""]) -> Model:
    """The model a configuration describes, freshly initialised."""
    match config.model:
        case TransformerConfig():
            return Transformer(config, key=key)
        case HypertransformerConfig():
            return Hypertransformer(config, key=key)
        case OwnModelConfig():
            return build_own(config, key=key)


def count_parameters(model: object) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))
