"""The hypertransformer: infers a latent from the context, and executes it on the query.

Paper: Appendix C.3.2, "Transformer Hypernetwork".
"""

from math import sqrt

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from recombine.config.schema import Config, HypertransformerConfig
from recombine.errors import InputError
from recombine.model.layer.linear import Linear
from recombine.model.trunk import Trunk, TrunkModel, pair_tokens


class Hypertransformer(TrunkModel):
    """X = ((x₁, y₁), …, (x_{N−1}, y_{N−1}), (0, 0)) through the trunk gives ẑ; y = readout(σ(W(ẑ) x_N)).

    Only the generated layer sees the query, so the inferred latent cannot depend on it. (The paper prints N pairs
    before the (0, 0) token, which would show the model the query's label. With `literal_input`, that is what it is
    shown: whoever calls it appends the query's pair to the context.)
    """

    trunk: Trunk
    latent: Linear
    theta: Float[Array, "latent hidden d"]
    base: Float[Array, "hidden d"] | None
    readout: Linear
    unit_norm: bool = eqx.field(static=True)
    forward_scale: float = eqx.field(static=True)
    literal_input: bool = eqx.field(static=True)

    def __init__(self, config: Config, *, key: Key[Array, ""]):
        model, input_dim = config.model, config.task.input_dim
        if not isinstance(model, HypertransformerConfig):
            raise InputError("model.kind", model.kind, "Hypertransformer is built from a HypertransformerConfig")
        trunk_key, latent_key, theta_key, base_key, readout_key = jax.random.split(key, 5)
        self.trunk = Trunk(model, input_dim, config.task.episode_length, key=trunk_key)
        self.latent = Linear(model.embed_dim, model.latent_dim, key=latent_key)
        # The entries of ẑ and x start with unit variance. This scale gives the entries of W(ẑ) x standard deviation
        # init_scale.
        terms = model.latent_dim + model.base_weights
        scale = model.init_scale / sqrt(terms * input_dim)
        self.forward_scale = 1 / sqrt(input_dim) if model.scaled_forward else 1.0
        scale /= self.forward_scale  # either way, the model starts as the same function
        shape = (model.hidden_dim, input_dim)
        self.theta = scale * jax.random.normal(theta_key, (model.latent_dim, *shape), jnp.float32)
        self.base = scale * jax.random.normal(base_key, shape, jnp.float32) if model.base_weights else None
        self.readout = Linear(model.hidden_dim, 1, key=readout_key)
        self.unit_norm, self.literal_input = model.unit_norm, model.literal_input

    def tokens(
        self,
        context_x: Float[Array, "context d"],
        context_y: Float[Array, "context"],
        query_x: Float[Array, "d"],
    ) -> Float[Array, "tokens d+1"]:
        return pair_tokens(context_x, context_y, jnp.zeros_like(query_x))

    def execute(self, z: Float[Array, "latent"], x: Float[Array, "d"]) -> Float[Array, ""]:
        """Apply the task network of a latent: W(z) = Σ_m z_m θ_m, one hidden GELU layer, the readout."""
        W = jnp.einsum("m,mhd->hd", z, self.theta)
        if self.base is not None:
            W = W + self.base
        if self.forward_scale != 1:
            W = W * self.forward_scale
        if self.unit_norm:
            W = W / jnp.linalg.norm(W, ord=2)
        return self.readout(jax.nn.gelu(W @ x, approximate=False))[0]

    def read_out(
        self, X: Float[Array, "tokens embed"], query_x: Float[Array, "d"]
    ) -> tuple[Float[Array, ""], Float[Array, "latent"]]:
        z = self.latent(self.trunk.read(X))
        return self.execute(z, query_x), z
