"""The bottleneck without the hypernetwork: an ablation that tells which of the two matters.

It has the trunk and the latent of the hypertransformer. But an ordinary network of about as many parameters executes
the task: its input is the latent and the query, concatenated. This file is also the worked example of a custom model.
"""

from math import isqrt

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from recombine.config.model import CustomModelConfig, HypertransformerConfig
from recombine.config.schema import Config
from recombine.model.layer.linear import Linear, as_label
from recombine.model.trunk import Trunk, TrunkModel, pair_tokens


def _closest_width(num_inputs: int, budget: int, o: int = 1) -> int:
    """The w ≥ 1 for which (inputs + 1) w + (w + 1) w + (w + 1) o, the weights of the layers, is closest to the budget.

    There are two hidden layers and o outputs.
    """
    b = num_inputs + 2 + o
    below = max(1, (isqrt(b * b + 4 * (budget - o)) - b) // 2)  # the root of w² + b w + o = budget, rounded down
    return min((below, below + 1), key=lambda w: abs(w * w + b * w + o - budget))


class Bottleneck(TrunkModel):
    """The context gives ẑ as in the hypertransformer; y = readout(σ(expand(σ(mix(ẑ, x_N)))))."""

    trunk: Trunk
    latent: Linear
    mix: Linear
    expand: Linear
    readout: Linear
    width: int = eqx.field(static=True)

    def __init__(self, config: Config, *, key: Key[Array, ""]):
        assert isinstance(config.model, CustomModelConfig)
        # The hypertransformer's options and defaults: the latent has a number for each module of the task.
        sizes = HypertransformerConfig(**{"latent_dim": config.task.num_modules, **dict(config.model.options)})
        input_dim, o, latent_dim = config.task.input_dim, config.task.output_dim, sizes.latent_dim
        keys = jax.random.split(key, 5)
        self.trunk = Trunk(sizes, input_dim, config.task.episode_length, output_dim=o, key=keys[0])
        self.latent = Linear(sizes.embed_dim, latent_dim, key=keys[1])
        # The budget: the hypernetwork has latent · hidden · input weights, and a readout of hidden + 1 for each output.
        # Our two hidden layers and the readout have (latent + input + 1) w + (w + 1) w + (w + 1) o.
        budget = latent_dim * sizes.hidden_dim * input_dim + (sizes.hidden_dim + 1) * o
        self.width = _closest_width(latent_dim + input_dim, budget, o)
        self.mix = Linear(latent_dim + input_dim, self.width, key=keys[2])
        self.expand = Linear(self.width, self.width, key=keys[3])
        self.readout = Linear(self.width, o, key=keys[4])

    def tokens(
        self,
        context_x: Float[Array, "context d"],
        context_y: Float[Array, "context *out"],
        query_x: Float[Array, "d"],
    ) -> Float[Array, "tokens pair"]:
        return pair_tokens(context_x, context_y, jnp.zeros_like(query_x))

    def execute(self, z: Float[Array, "latent"], x: Float[Array, "d"]) -> Float[Array, "*out"]:
        hidden = jax.nn.gelu(self.mix(jnp.concatenate([z, x])), approximate=False)
        return as_label(self.readout(jax.nn.gelu(self.expand(hidden), approximate=False)))

    def read_out(
        self,
        X: Float[Array, "tokens embed"],
        context_x: Float[Array, "context d"],
        context_y: Float[Array, "context *out"],
        query_x: Float[Array, "d"],
    ) -> tuple[Float[Array, "*out"], Float[Array, "latent"]]:
        z = self.latent(self.trunk.read(X))
        return self.execute(z, query_x), z
