"""A recurrent network: a GRU reads the pairs one after the other; its last state and the query give the prediction.

Cho et al. 2014. The state is all that the network keeps of the context.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from recombine.config.schema import Config
from recombine.model.architecture.feedforward import Feedforward, read_sizes
from recombine.model.interface import Output, Trace
from recombine.model.layer.linear import Linear, as_label


class Recurrent(eqx.Module):
    """h ← GRU(h, embed(x_i, y_i)) for every pair;  y = ρ(h, x_N)."""

    embedding: Linear
    gates: Linear
    candidate: Linear
    mix: Feedforward
    readout: Feedforward

    def __init__(self, config: Config, *, key: Key[Array, ""]):
        width = read_sizes(config, embed_dim=128)["embed_dim"]
        d, o, keys = config.task.input_dim, config.task.output_dim, jax.random.split(key, 5)
        self.embedding = Linear(d + o, width, key=keys[0])
        self.gates = Linear(2 * width, 2 * width, key=keys[1])
        self.candidate = Linear(2 * width, width, key=keys[2])
        self.mix = Feedforward(width + d, 4 * width, width, key=keys[3])
        self.readout = Feedforward(width, 4 * width, o, key=keys[4])

    def step(self, h: Float[Array, "embed"], u: Float[Array, "embed"]) -> Float[Array, "embed"]:
        """r, s = σ(gates);  h ← s h + (1 − s) tanh(candidate(r h, u))."""
        reset, stay = jnp.split(jax.nn.sigmoid(self.gates(jnp.concatenate([h, u]))), 2)
        candidate = jnp.tanh(self.candidate(jnp.concatenate([reset * h, u])))
        return stay * h + (1 - stay) * candidate

    def execute(self, z: Float[Array, "embed"], x: Float[Array, "d"]) -> Float[Array, "*out"]:
        """Apply the task that a state stands for."""
        return as_label(self.readout(jax.nn.gelu(self.mix(jnp.concatenate([z, x])), approximate=False)))

    def __call__(
        self,
        context_x: Float[Array, "context d"],
        context_y: Float[Array, "context *out"],
        query_x: Float[Array, "d"],
    ) -> Output:
        U = self.embedding(jnp.column_stack([context_x, context_y]))
        h, _ = jax.lax.scan(lambda h, u: (self.step(h, u), None), jnp.zeros_like(U[0]), U)
        return Output(self.execute(h, query_x), Trace(latent=h))
