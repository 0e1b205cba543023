"""The hypertransformer: infers a latent from the context, and executes it on the query.

Paper: Appendix C.3.2, "Transformer Hypernetwork".
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from recombine.config.model import HypertransformerConfig
from recombine.config.schema import Config
from recombine.errors import InputError
from recombine.model.layer.generated import GeneratedLayer, forward_scale, generated_parameters
from recombine.model.layer.linear import Linear
from recombine.model.trunk import Trunk, TrunkModel, pair_tokens


class Hypertransformer(TrunkModel, GeneratedLayer):
    """X = ((x₁, y₁), …, (x_{N−1}, y_{N−1}), (0, 0)) through the trunk gives ẑ; y = readout(σ(W(ẑ) x_N)).

    Only the generated layer sees the query, so the inferred latent cannot depend on it. (The paper prints N pairs
    before the (0, 0) token, which would show the model the query's label. With `literal_input` the model is
    shown this label: the caller appends the query's pair to the context.)

    With `inference_steps` = K > 0, which is not in the paper, the trunk's ẑ is only the start: K steps of explicit
    inference improve it on the context before it is executed.
    """

    trunk: Trunk
    latent: Linear
    theta: Float[Array, "latent hidden d"]
    base: Float[Array, "hidden d"] | None
    readout: Linear
    log_damping: Float[Array, "steps"] | None
    unit_norm: bool = eqx.field(static=True)
    forward_scale: float = eqx.field(static=True)
    literal_input: bool = eqx.field(static=True)

    def __init__(self, config: Config, *, key: Key[Array, ""]):
        model, input_dim, output_dim = config.model, config.task.input_dim, config.task.output_dim
        if not isinstance(model, HypertransformerConfig):
            raise InputError("model.kind", model.kind, "Hypertransformer is built from a HypertransformerConfig")
        trunk_key, latent_key, theta_key, base_key, readout_key = jax.random.split(key, 5)
        self.trunk = Trunk(model, input_dim, config.task.episode_length, output_dim=output_dim, key=trunk_key)
        self.latent = Linear(model.embed_dim, model.latent_dim, key=latent_key)
        self.theta, self.base, self.readout, self.log_damping = generated_parameters(
            model, input_dim, theta_key, base_key, readout_key, output_dim
        )
        self.forward_scale = forward_scale(model, input_dim)
        self.unit_norm, self.literal_input = model.unit_norm, model.literal_input

    def tokens(
        self,
        context_x: Float[Array, "context d"],
        context_y: Float[Array, "context *out"],
        query_x: Float[Array, "d"],
    ) -> Float[Array, "tokens pair"]:
        return pair_tokens(context_x, context_y, jnp.zeros_like(query_x))

    def read_out(
        self,
        X: Float[Array, "tokens embed"],
        context_x: Float[Array, "context d"],
        context_y: Float[Array, "context *out"],
        query_x: Float[Array, "d"],
    ) -> tuple[Float[Array, "*out"], Float[Array, "latent"]]:
        z = self.infer(self.latent(self.trunk.read(X)), context_x, context_y)
        return self.execute(z, query_x), z
