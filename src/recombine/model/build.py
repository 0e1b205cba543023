"""Builds a freshly initialised model from a configuration."""

import equinox as eqx
import jax
from jaxtyping import Array, Key

from recombine.config.model import CustomModelConfig, HypertransformerConfig, TransformerConfig
from recombine.config.schema import Config
from recombine.model.custom import build_custom
from recombine.model.framework.torch_model import TorchModel
from recombine.model.hypertransformer import Hypertransformer
from recombine.model.interface import Model
from recombine.model.transformer import Transformer


def build_model(config: Config, *, key: Key[Array, ""]) -> Model:
    """The model a configuration describes, freshly initialised."""
    match config.model:
        case TransformerConfig():
            return Transformer(config, key=key)
        case HypertransformerConfig():
            return Hypertransformer(config, key=key)
        case CustomModelConfig():
            return build_custom(config, key=key)


def count_parameters(model: object) -> int:
    trained = model.parameters if isinstance(model, TorchModel) else model
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(trained, eqx.is_inexact_array)))
