"""Settings: the training that each kind of contender is asked to do."""

from collections.abc import Callable
from typing import Any, Literal

from recombine.config.model import MODEL_CONFIGS, CustomModelConfig, HypertransformerConfig, ModelKind
from recombine.config.schema import Config
from recombine.config.toml import override, parse_toml, write_toml
from recombine.errors import InputError
from recombine.record.codec import Record

Stepper = Callable[[int], float]
"""Runs a given number of training steps (at least one) to completion, and returns the last loss."""


class MissingRequirement(RuntimeError):
    """Something that a contender needs besides its packages is not on this machine. The message names it."""


class PeerSetting(Record, frozen=True, kw_only=True, tag=True):
    """The task, the architecture and the optimisation, in plain numbers that belong to no library."""

    kind: ModelKind
    episode_length: int
    """N, the query included."""
    input_dim: int
    hidden_dim: int
    """The width of the teacher."""
    num_modules: int
    masks: tuple[tuple[int, ...], ...]
    embed_dim: int
    num_heads: int
    num_layers: int
    ffn_factor: int
    latent_dim: int
    """0 for the transformer, which has no latent."""
    main_hidden_dim: int
    """The width of the hypertransformer's main network; 0 for the transformer."""
    batch_size: int
    learning_rate: float
    weight_decay: float
    clip_norm: float
    num_steps: int
    """The steps that the cosine schedule spans."""
    seed: int

    @classmethod
    def from_config(cls, config: Config) -> "PeerSetting":
        """The setting of a run. Options that the peers lack are refused, except the position bias: no peer has it."""
        task, model, optimizer = config.task, config.model, config.optimizer
        if isinstance(model, CustomModelConfig):
            raise InputError("model.kind", model.kind, f"the peers are {' and '.join(MODEL_CONFIGS)}")
        hyper = isinstance(model, HypertransformerConfig)
        _refuse("task.output_dim", task.output_dim, 1)
        _refuse("model.causal", model.causal, False)
        _refuse("model.scale_scores", model.scale_scores, True)
        _refuse("model.final_norm", model.final_norm, True)
        _refuse("model.base_weights", hyper and model.base_weights, False)
        _refuse("model.unit_norm", hyper and model.unit_norm, False)
        _refuse("optimizer.warmup_steps", optimizer.warmup_steps, 0)
        _refuse("optimizer.final_fraction", optimizer.final_fraction, 0.0)
        return cls(
            kind=model.kind,
            episode_length=task.episode_length,
            input_dim=task.input_dim,
            hidden_dim=task.hidden_dim,
            num_modules=task.num_modules,
            masks=task.support.masks,
            embed_dim=model.embed_dim,
            num_heads=model.num_heads,
            num_layers=model.num_layers,
            ffn_factor=model.ffn_factor,
            latent_dim=model.latent_dim if hyper else 0,
            main_hidden_dim=model.hidden_dim if hyper else 0,
            batch_size=optimizer.batch_size,
            learning_rate=optimizer.learning_rate,
            weight_decay=optimizer.weight_decay or 0.0,  # never None here: a Config fills it in
            clip_norm=optimizer.clip_norm,
            num_steps=optimizer.num_steps,
            seed=config.seed,
        )


class OurSetting(Record, frozen=True, tag=True):
    """A whole configuration (TOML), and the threads and devices that it may run on."""

    toml: str
    threads: int
    devices: int

    @classmethod
    def from_config(cls, config: Config, threads: int, devices: int = 1) -> "OurSetting":
        return cls(write_toml(config), threads, devices)

    @property
    def config(self) -> Config:
        return override(Config(), parse_toml(self.toml, "setting"))


class MatmulSetting(Record, frozen=True, tag=True):
    """A step multiplies X (rows × inner) by V (inner × columns) and then by Vᵀ, `products` times over."""

    library: Literal["numpy", "jax"]
    rows: int
    inner: int
    columns: int
    products: int
    """How many pairs of products make a step."""

    @property
    def flops(self) -> int:
        """The floating-point operations of one step."""
        return self.products * 4 * self.rows * self.inner * self.columns


Setting = PeerSetting | OurSetting | MatmulSetting


def _refuse(field: str, value: Any, only: Any) -> None:
    if value != only:
        raise InputError(field, value, f"the other libraries of the benchmark support only {only!r}")
