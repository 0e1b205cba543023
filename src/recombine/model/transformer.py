"""The transformer: predicts the query's label directly.

Paper: Appendix C.3.1 (app:architecture), "Vanilla transformer".
"""

import equinox as eqx
import jax
from jaxtyping import Array, Float, Key

from recombine.config.model import TransformerConfig
from recombine.config.schema import Config
from recombine.errors import InputError
from recombine.model.layer.linear import Linear, as_label
from recombine.model.trunk import Trunk, TrunkModel, pair_tokens


class Transformer(TrunkModel):
    """X = ((x₁, y₁), …, (x_{N−1}, y_{N−1}), (x_N, 0)) goes through the trunk; the readout projects the query token."""

    trunk: Trunk
    readout: Linear
    given_latent: bool = eqx.field(static=True)

    def __init__(self, config: Config, *, key: Key[Array, ""]):
        if not isinstance(config.model, TransformerConfig):
            raise InputError("model.kind", config.model.kind, "Transformer is built from a TransformerConfig")
        self.given_latent, task = config.model.given_latent, config.task
        trunk_key, readout_key = jax.random.split(key)
        self.trunk = Trunk(config.model, task.input_dim, task.episode_length, output_dim=task.output_dim, key=trunk_key)
        self.readout = Linear(config.model.embed_dim, task.output_dim, key=readout_key)

    def tokens(
        self,
        context_x: Float[Array, "context d"],
        context_y: Float[Array, "context *out"],
        query_x: Float[Array, "d"],
    ) -> Float[Array, "tokens pair"]:
        return pair_tokens(context_x, context_y, query_x)

    def read_out(
        self,
        X: Float[Array, "tokens embed"],
        context_x: Float[Array, "context d"],
        context_y: Float[Array, "context *out"],
        query_x: Float[Array, "d"],
    ) -> tuple[Float[Array, "*out"], None]:
        return as_label(self.readout(self.trunk.read(X))), None
