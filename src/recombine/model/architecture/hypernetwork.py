"""The meta-learned hypernetwork: no transformer at all. Does inference need one?

Its start is the same latent for every context. Explicit inference improves it, through the generated layer that also
executes it. Start, modules and damping are trained end to end, as in the setting from which the paper's task stems
(Schug et al., 2024, "Discovering modular solutions that generalize compositionally").
"""

from dataclasses import fields

import equinox as eqx
import jax
from jaxtyping import Array, Float, Key

from recombine.config.model import EXPLICIT_STEPS, CustomModelConfig, HypertransformerConfig, TrunkConfig
from recombine.config.schema import Config
from recombine.errors import InputError
from recombine.model.interface import Output, Trace
from recombine.model.layer.generated import GeneratedLayer, forward_scale, generated_parameters
from recombine.model.layer.linear import Linear


class Hypernetwork(GeneratedLayer):
    """ẑ = K steps of explicit inference from a learned start; y = readout(σ(W(ẑ) x_N))."""

    start: Float[Array, "latent"]
    theta: Float[Array, "latent hidden d"]
    base: Float[Array, "hidden d"] | None
    readout: Linear
    log_damping: Float[Array, "steps"] | None
    unit_norm: bool = eqx.field(static=True)
    forward_scale: float = eqx.field(static=True)

    def __init__(self, config: Config, *, key: Key[Array, ""]):
        assert isinstance(config.model, CustomModelConfig)
        sizes = _sizes({"latent_dim": config.task.num_modules, **dict(config.model.options)})
        start_key, *keys = jax.random.split(key, 4)
        self.start = jax.random.normal(start_key, (sizes.latent_dim,))
        self.theta, self.base, self.readout, self.log_damping = generated_parameters(
            sizes, config.task.input_dim, *keys, output_dim=config.task.output_dim
        )
        self.unit_norm, self.forward_scale = sizes.unit_norm, forward_scale(sizes, config.task.input_dim)

    def __call__(
        self,
        context_x: Float[Array, "context d"],
        context_y: Float[Array, "context *out"],
        query_x: Float[Array, "d"],
    ) -> Output:
        z = self.infer(self.start, context_x, context_y)
        return Output(self.execute(z, query_x), Trace(latent=z))


def _sizes(options: dict) -> HypertransformerConfig:
    """The hypertransformer's options without those of its trunk."""
    for name in {field.name for field in fields(TrunkConfig)} & options.keys():
        raise InputError(f"model.options.{name}", options[name], "is for a transformer, and Hypernetwork has none")
    sizes = HypertransformerConfig(**{"inference_steps": EXPLICIT_STEPS, **options})
    if not sizes.inference_steps:
        raise InputError("model.options.inference_steps", 0, "Hypernetwork infers by explicit steps: at least 1")
    return sizes
