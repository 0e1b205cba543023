"""A deep set: every pair is encoded alone, the codes are averaged, and the mean and the query give the prediction.

Zaheer et al. 2017, "Deep Sets". The pairs never see each other before the mean, so nothing is compared in context.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from recombine.config.schema import Config
from recombine.model.architecture.feedforward import Feedforward, read_sizes
from recombine.model.interface import Output, Trace
from recombine.model.layer.linear import as_label


class DeepSet(eqx.Module):
    """ẑ = mean_i φ(x_i, y_i);  y = ρ(ẑ, x_N)."""

    encode: Feedforward
    mix: Feedforward
    readout: Feedforward

    def __init__(self, config: Config, *, key: Key[Array, ""]):
        width = read_sizes(config, embed_dim=128)["embed_dim"]
        d, o, keys = config.task.input_dim, config.task.output_dim, jax.random.split(key, 3)
        self.encode = Feedforward(d + o, 4 * width, width, key=keys[0])
        self.mix = Feedforward(width + d, 4 * width, width, key=keys[1])
        self.readout = Feedforward(width, 4 * width, o, key=keys[2])

    def execute(self, z: Float[Array, "embed"], x: Float[Array, "d"]) -> Float[Array, "*out"]:
        """Apply the task that a code stands for."""
        return as_label(self.readout(jax.nn.gelu(self.mix(jnp.concatenate([z, x])), approximate=False)))

    def __call__(
        self,
        context_x: Float[Array, "context d"],
        context_y: Float[Array, "context *out"],
        query_x: Float[Array, "d"],
    ) -> Output:
        z = self.encode(jnp.column_stack([context_x, context_y])).mean(axis=0)
        return Output(self.execute(z, query_x), Trace(latent=z))
