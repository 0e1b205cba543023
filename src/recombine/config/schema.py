"""The configuration of a run: frozen dataclasses, checked on construction.

Every choice that the paper leaves open and that changes a run is a field here, or in `task.py` and `model.py` beside
this file; `docs/decisions.md` explains each.
"""

from dataclasses import dataclass, field, fields, replace
from typing import Literal

from recombine import paper
from recombine.checks import LARGEST_COUNT, check_choice, check_number, check_seed, check_size
from recombine.config.model import (
    MODEL_CONFIGS,
    CustomModelConfig,
    HypertransformerConfig,
    ModelConfig,
    TransformerConfig,
)
from recombine.config.task import HYPERNETWORK, TaskConfig
from recombine.errors import InputError
from recombine.html_table import html_table
from recombine.support.support import Support

CONSTRUCTION = "construction"  # the start from the weights of Appendix A


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW with cosine annealing and clipping by the global norm. Paper: Tables 2 and 3."""

    num_steps: int = paper.NUM_STEPS  # training steps; each draws new episodes
    batch_size: int = paper.BATCH_SIZE.transformer  # episodes per step
    learning_rate: float = paper.LEARNING_RATE.transformer  # the peak learning rate
    weight_decay: float | None = None  # AdamW's weight decay; None: the model's value in Table 3
    clip_norm: float = paper.CLIP_NORM.transformer  # larger gradients are scaled down to this norm
    warmup_steps: int = 0  # steps in which the learning rate rises linearly from 0
    final_fraction: float = 0.0  # the learning rate at the end of the cosine, as a fraction of its peak
    decay: Literal["matrices", "all"] = "matrices"  # the parameters that weight decay shrinks

    def __post_init__(self) -> None:
        check_size("optimizer.num_steps", self.num_steps, most=LARGEST_COUNT)
        check_size("optimizer.batch_size", self.batch_size)
        check_number("optimizer.learning_rate", self.learning_rate, above=0.0)
        if self.weight_decay is not None:
            check_number("optimizer.weight_decay", self.weight_decay, least=0.0)
        check_number("optimizer.clip_norm", self.clip_norm, above=0.0)
        check_size("optimizer.warmup_steps", self.warmup_steps, least=0, most=self.num_steps - 1)
        check_number("optimizer.final_fraction", self.final_fraction, least=0.0, most=1.0)
        check_choice("optimizer.decay", self.decay, "matrices", "all")


@dataclass(frozen=True)
class MeasureConfig:
    """How much is measured, and how often."""

    episodes: int = paper.EVAL_EPISODES  # episodes scored per split
    snapshots: int = 40  # measurements, evenly spaced over the run; one more precedes the first step

    def __post_init__(self) -> None:
        check_size("measure.episodes", self.episodes, least=2, most=LARGEST_COUNT)
        check_size("measure.snapshots", self.snapshots)


@dataclass(frozen=True)
class ComputeConfig:
    """How a training step is computed. It changes the last bits of the numbers, not the model or the task."""

    path: Literal["fast", "plain"] = "fast"  # plain: the model as the paper writes it, every token through every block
    precision: Literal["float32", "bfloat16"] = "float32"  # precision of training passes; the rest is float32

    def __post_init__(self) -> None:
        check_choice("compute.path", self.path, "fast", "plain")
        check_choice("compute.precision", self.precision, "float32", "bfloat16")


@dataclass(frozen=True)
class TrainConfig:
    """Where training starts, and on which episodes. The defaults, which are the paper's, are not stored."""

    start_from: str | None = None  # construction, or a run to start from; {seed} and {support} stand for this run's
    dream: float | None = None  # the share of episodes that the model labels itself; its modules and readout stay fixed

    def __post_init__(self) -> None:
        if self.start_from is not None and (not isinstance(self.start_from, str) or not self.start_from):
            raise InputError("train.start_from", self.start_from, f"{CONSTRUCTION}, or the path of a run")
        if self.dream is not None:
            check_number("train.dream", self.dream, least=0.0, most=1.0)


@dataclass(frozen=True)
class Config:
    """One run: one model, one seed, one task distribution."""

    task: TaskConfig = field(default_factory=TaskConfig)
    model: ModelConfig = field(default_factory=TransformerConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    measure: MeasureConfig = field(default_factory=MeasureConfig)
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    seed: int = 0  # determines the initial parameters, the data and, unless teacher_seed is set, the teacher
    teacher_seed: int | None = None  # determines the teacher; None: the same as `seed`
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        if self.optimizer.weight_decay is None:
            weight_decay = getattr(paper.WEIGHT_DECAY, self.model.kind, paper.WEIGHT_DECAY.transformer)
            object.__setattr__(self, "optimizer", replace(self.optimizer, weight_decay=weight_decay))
        if getattr(self.model, "given_latent", False) and self.task.input_dim < self.task.num_modules:
            raise InputError("model.given_latent", True, f"needs task.input_dim ≥ {self.task.num_modules} modules")
        self._check_dream()
        check_seed("seed", self.seed)
        if self.teacher_seed is not None:
            check_seed("teacher_seed", self.teacher_seed)

    def _check_dream(self) -> None:
        if self.train.dream is None:
            return
        if not isinstance(self.model, HypertransformerConfig) or self.model.literal_input:
            raise InputError("train.dream", self.train.dream, f"a hypertransformer; {self.model.label} cannot dream")
        if self.train.start_from in (None, CONSTRUCTION):
            expected = "also train.start_from, a run: only trained modules label episodes"
            raise InputError("train.dream", self.train.dream, expected)

    def __repr__(self) -> str:
        task, steps = self.task, self.optimizer.num_steps
        sizes = f"N = {task.episode_length}, d = {task.input_dim}, h = {task.hidden_dim}"
        return f"Config({self.model.label} on {task.support.name}, {sizes}, {steps:,} steps, seed {self.seed})"

    def _repr_html_(self) -> str:
        """A table with a row for each group of fields."""
        groups = {"task": self.task, "model": self.model, "optimizer": self.optimizer}
        groups |= {"measure": self.measure, "compute": self.compute, "train": self.train}
        rows = [
            (name, ", ".join(f"{field.name} = {_shown(getattr(group, field.name))}" for field in fields(group)))
            for name, group in groups.items()
        ]
        return html_table(repr(self), (), rows)


def _shown(value: object) -> object:
    return value.name if isinstance(value, Support) else value


def field_names() -> dict[str, list[str]]:
    """The fields of a configuration by group, {'task': ['support', …]}; those of all models together."""
    groups = {"task": [TaskConfig], "model": list(MODEL_CONFIGS.values()), "optimizer": [OptimizerConfig]}
    groups |= {"measure": [MeasureConfig], "compute": [ComputeConfig], "train": [TrainConfig]}
    return {
        name: list(dict.fromkeys(field.name for kind in kinds for field in fields(kind)))
        for name, kinds in groups.items()
    }


def custom_task(config: Config) -> str | None:
    """The class of a custom task, `package.module:Class`; None for the paper's."""
    return None if config.task.kind == HYPERNETWORK else config.task.kind


def custom_model(config: Config) -> str | None:
    """The class of a custom model, `package.module:Class`; None for the paper's two models."""
    return config.model.kind if isinstance(config.model, CustomModelConfig) else None
