"""The training job that every contender is given, and what it makes of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from recombine.config.schema import MODEL_CONFIGS, Config, CustomModelConfig, HypertransformerConfig, ModelKind
from recombine.errors import InputError

Stepper = Callable[[int], float]
"""Runs that many full training steps, at least one, and returns the last loss: by then, all has been computed."""


class Missing(RuntimeError):
    """A contender cannot run here, and why: something that it needs besides its packages is not there."""


@dataclass(frozen=True)
class Job:
    """The task, the architecture and the optimisation, in plain numbers that no library owns."""

    kind: ModelKind
    episode_length: int  # N, the query included
    input_dim: int
    hidden_dim: int  # of the teacher
    num_modules: int
    masks: tuple[tuple[int, ...], ...]
    embed_dim: int
    num_heads: int
    num_layers: int
    ffn_factor: int
    latent_dim: int  # 0 for the transformer, which has none
    main_hidden_dim: int  # likewise
    batch_size: int
    learning_rate: float
    weight_decay: float
    clip_norm: float
    num_steps: int  # that the cosine spans
    seed: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "masks", tuple(map(tuple, self.masks)))  # JSON has lists only

    @classmethod
    def from_config(cls, config: Config) -> "Job":
        """The job of a run. What the peers do not do is refused, except the position bias: they have none."""
        task, model, optimizer = config.task, config.model, config.optimizer
        if isinstance(model, CustomModelConfig):
            raise InputError("model.kind", model.kind, f"the peers are {' and '.join(MODEL_CONFIGS)}")
        hyper = isinstance(model, HypertransformerConfig)
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
            weight_decay=optimizer.weight_decay or 0.0,  # a Config has filled it in
            clip_norm=optimizer.clip_norm,
            num_steps=optimizer.num_steps,
            seed=config.seed,
        )


def _refuse(field: str, value: Any, only: Any) -> None:
    if value != only:
        raise InputError(field, value, f"the peers of the benchmark have {only!r} only")
