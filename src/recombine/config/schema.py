"""The configuration of a run: frozen dataclasses, checked on construction.

Every choice that the paper leaves open and that changes a run is a field here; `docs/decisions.md` explains each.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from typing import Any, ClassVar, Literal, get_args

from recombine import paper
from recombine.checks import LARGEST_COUNT, check_bool, check_choice, check_number, check_seed, check_size
from recombine.errors import InputError
from recombine.html_table import html_table
from recombine.support.parse import parse_support
from recombine.support.support import Support, paper_support

ModelKind = Literal["transformer", "hypertransformer"]
ExtraPair = Literal["latent", "query"]  # shown to a model besides the context: (z, 0), or (x_N, y_N) with its label
Activation = Literal["gelu", "relu", "even"]
InputDistribution = Literal["uniform", "normal", "sphere"]
# Our own classes by their short names: importable even if the command does not name them.
BASELINES: dict[str, str] = {
    "bottleneck": "recombine.model.bottleneck:Bottleneck",
    "hypernetwork": "recombine.model.architecture.hypernetwork:Hypernetwork",
    "linear-attention": "recombine.model.architecture.linear_attention:LinearAttention",
    "deep-set": "recombine.model.architecture.deep_set:DeepSet",
    "recurrent": "recombine.model.architecture.recurrent:Recurrent",
    "gated-attention": "recombine.model.architecture.gated_attention:GatedAttention",
    "perceiver": "recombine.model.architecture.perceiver:Perceiver",
}
SHIPPED = tuple(BASELINES.values())
MOST_INFERENCE_STEPS = 100  # each is compiled
RESERVED = ("transformer", "hypertransformer", "informed")  # labels of our own models: reports identify models by label
MOST_DROPOUT = 0.9
SEES_LABEL = "hypertransformer (sees the query label)"  # no class can have this name
HYPERNETWORK = "hypernetwork"  # the paper's teacher
VARIATIONS = ("activation", "num_layers", "weight_scale", "label_noise", "input_distribution", "kind", "options")


def full_kind(kind: Any) -> Any:
    """The class of a baseline that is named by its short name. Everything else is left as it is."""
    return BASELINES.get(kind, kind) if isinstance(kind, str) else kind


def check_class(field: str, kind: Any, *others: str) -> None:
    if not isinstance(kind, str) or not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", kind):
        raise InputError(field, kind, " or ".join([*others, "package.module:Class"]))


def check_options(field: str, pairs: Sequence[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    """The options of a user's class, as sorted pairs, so that a configuration is hashable."""
    options = dict(pairs)
    for name, value in options.items():
        if not isinstance(value, str | bool | int | float):
            raise InputError(f"{field}.{name}", value, "a string, a number or a truth value")
        if isinstance(value, float) and not isfinite(value):
            raise InputError(f"{field}.{name}", value, "must be finite")
    return tuple(sorted(options.items()))


@dataclass(frozen=True)
class TaskConfig:
    """The tasks. The number of modules M is the length of the support's masks."""

    support: Support = field(default_factory=lambda: paper_support(paper.DEFAULT_SUPPORT))
    input_dim: int = paper.INPUT_DIM
    hidden_dim: int = paper.HIDDEN_DIM
    episode_length: int = 32  # N, the query included
    # Variations of the paper's task.
    activation: Activation = "gelu"  # of the teacher's network; even: gelu(u) + gelu(−u)
    num_layers: int = 1  # hidden layers of the teacher's network, all of them made of modules
    weight_scale: float = 1.0  # the operator norm of every layer's weights
    label_noise: float = 0.0  # standard deviation of the noise on the labels of the context
    input_distribution: InputDistribution = "uniform"  # every entry has mean 0 and variance 1
    kind: str = HYPERNETWORK  # or a class of the user's, package.module:Class
    options: tuple[tuple[str, Any], ...] = ()  # of that class

    def __post_init__(self) -> None:
        if not isinstance(self.support, Support):
            object.__setattr__(self, "support", parse_support(self.support))
        check_size("task.input_dim", self.input_dim)
        check_size("task.hidden_dim", self.hidden_dim)
        check_size("task.episode_length", self.episode_length, least=2)  # a query, and at least one context pair

        check_choice("task.activation", self.activation, *get_args(Activation))
        check_size("task.num_layers", self.num_layers, most=64)
        check_number("task.weight_scale", self.weight_scale, above=0.0)
        check_number("task.label_noise", self.label_noise, least=0.0)
        check_choice("task.input_distribution", self.input_distribution, *get_args(InputDistribution))
        if self.kind != HYPERNETWORK:
            check_class("task.kind", self.kind, HYPERNETWORK)
            for name in ("activation", "num_layers", "weight_scale"):
                if name in self.variation:
                    wanted = f"is for the paper's teacher; {self.kind} labels inputs as it likes"
                    raise InputError(f"task.{name}", getattr(self, name), wanted)
        elif self.options:
            raise InputError("task.options", dict(self.options), "are for a class of your own: --task")
        object.__setattr__(self, "options", check_options("task.options", self.options))

    @property
    def num_modules(self) -> int:
        return self.support.num_modules

    @property
    def variation(self) -> dict[str, Any]:
        """The fields in which the task differs from the paper's, besides its support and its sizes."""
        defaults = {f.name: f.default for f in fields(self) if f.name in VARIATIONS}
        found = {name: getattr(self, name) for name, default in defaults.items() if getattr(self, name) != default}
        return found | ({"options": dict(self.options)} if self.options else {})

    @property
    def described(self) -> str:
        """The sizes, and how the task differs from the paper's: 'N = 16, d = 8, h = 8, activation = even'."""
        sizes = {"N": self.episode_length, "d": self.input_dim, "h": self.hidden_dim}
        return ", ".join(f"{name.replace('_', ' ')} = {value}" for name, value in (sizes | self.variation).items())

    @property
    def is_paper(self) -> bool:
        return not self.variation


@dataclass(frozen=True)
class TrunkConfig:
    """The trunk that the two models share: embedding and blocks. Paper: Appendix C.3 (app:architecture)."""

    embed_dim: int
    num_heads: int
    num_layers: int
    ffn_factor: int
    causal: bool = False
    position_bias: Literal["per_block", "shared", "none"] = "per_block"  # T5's relative bias
    scale_scores: bool = True  # multiply attention scores by 1/√d_head; T5 itself does not
    final_norm: bool = True
    position_buckets: Literal["t5", "one_directional"] = "t5"  # one_directional: N buckets, all for earlier tokens
    dropout: float = 0.0  # the share of attention weights that a training step sets to 0

    def __post_init__(self) -> None:
        for name in ("embed_dim", "num_heads", "num_layers", "ffn_factor"):
            check_size(f"model.{name}", getattr(self, name))
        if self.embed_dim % self.num_heads:
            raise InputError("model.num_heads", self.num_heads, f"must divide model.embed_dim = {self.embed_dim}")
        for name in ("causal", "scale_scores", "final_norm"):
            check_bool(f"model.{name}", getattr(self, name))
        check_choice("model.position_bias", self.position_bias, "per_block", "shared", "none")
        check_choice("model.position_buckets", self.position_buckets, "t5", "one_directional")
        check_number("model.dropout", self.dropout, least=0.0, most=MOST_DROPOUT)


@dataclass(frozen=True)
class TransformerConfig(TrunkConfig):
    """The transformer: the trunk, and a read-out at the query token."""

    embed_dim: int = paper.EMBED_DIM.transformer
    num_heads: int = paper.NUM_HEADS.transformer
    num_layers: int = paper.NUM_LAYERS.transformer
    ffn_factor: int = paper.FFN_FACTOR.transformer
    given_latent: bool = False  # show the model the true latent, as one more pair (z, 0) before the context

    kind: ClassVar[ModelKind] = "transformer"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bool("model.given_latent", self.given_latent)

    @property
    def label(self) -> str:
        """The model's name in tables and figures."""
        return "informed" if self.given_latent else self.kind


@dataclass(frozen=True)
class HypertransformerConfig(TrunkConfig):
    """The transformer with the hypernetwork bottleneck: the trunk, a latent, and modules of its own."""

    embed_dim: int = paper.EMBED_DIM.hypertransformer
    num_heads: int = paper.NUM_HEADS.hypertransformer
    num_layers: int = paper.NUM_LAYERS.hypertransformer
    ffn_factor: int = paper.FFN_FACTOR.hypertransformer
    latent_dim: int = paper.LATENT_DIM.hypertransformer
    hidden_dim: int = paper.MAIN_HIDDEN_DIM.hypertransformer
    base_weights: bool = False  # a learned θ̂₀ beside the modules
    init_scale: float = 1.0  # standard deviation of the generated layer's pre-activations at the start
    unit_norm: bool = False  # divide the generated layer by its operator norm, as the teacher does
    scaled_forward: bool = False  # divide the generated layer by √d in the forward pass, not its modules at the start
    literal_input: bool = False  # the input as printed: the query's pair (x_N, y_N), label included, is in the context
    inference_steps: int = 0  # K steps of explicit inference on the latent; 0: the paper's model

    kind: ClassVar[ModelKind] = "hypertransformer"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_size("model.latent_dim", self.latent_dim)
        check_size("model.hidden_dim", self.hidden_dim)
        for name in ("base_weights", "unit_norm", "scaled_forward", "literal_input"):
            check_bool(f"model.{name}", getattr(self, name))
        check_number("model.init_scale", self.init_scale, above=0.0)
        check_size("model.inference_steps", self.inference_steps, least=0, most=MOST_INFERENCE_STEPS)

    @property
    def label(self) -> str:
        """The model's name in tables and figures. A model that is shown the answer is another model."""
        if self.literal_input:
            return SEES_LABEL
        return f"explicit-{self.inference_steps}" if self.inference_steps else self.kind


@dataclass(frozen=True)
class CustomModelConfig:
    """A custom model: the user's class, `package.module:Class`, and its options.

    The class is imported only if the command line names it, never because a file does.
    """

    kind: str
    options: tuple[tuple[str, Any], ...] = ()  # a table, stored as sorted pairs so that a configuration is hashable

    def __post_init__(self) -> None:
        check_class("model.kind", self.kind)
        if self.label in RESERVED:
            raise InputError("model.kind", self.kind, f"Recombine has its own model {self.label}; rename the class")
        object.__setattr__(self, "options", check_options("model.options", self.options))

    @property
    def label(self) -> str:
        return self.kind.partition(":")[2]


ModelConfig = TransformerConfig | HypertransformerConfig | CustomModelConfig

MODEL_CONFIGS: dict[ModelKind, type[TransformerConfig] | type[HypertransformerConfig]] = {
    "transformer": TransformerConfig,
    "hypertransformer": HypertransformerConfig,
}


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW with cosine annealing and clipping by the global norm. Paper: Tables 2 and 3."""

    num_steps: int = paper.NUM_STEPS
    batch_size: int = paper.BATCH_SIZE.transformer
    learning_rate: float = paper.LEARNING_RATE.transformer
    weight_decay: float | None = None  # None: Config fills in the value of Table 3 for the model
    clip_norm: float = paper.CLIP_NORM.transformer
    warmup_steps: int = 0
    final_fraction: float = 0.0  # the learning rate at the end of the cosine, as a fraction of its peak
    decay: Literal["matrices", "all"] = "matrices"  # which parameters the weight decay shrinks

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

    episodes: int = paper.EVAL_EPISODES  # per split
    snapshots: int = 40  # spread evenly over the run, and one more before the first step

    def __post_init__(self) -> None:
        check_size("measure.episodes", self.episodes, least=2, most=LARGEST_COUNT)
        check_size("measure.snapshots", self.snapshots)


@dataclass(frozen=True)
class ComputeConfig:
    """How a training step is computed. It changes the last bits of the numbers, not the model or the task."""

    path: Literal["fast", "plain"] = "fast"  # plain: the model as the paper writes it, every token through every block
    precision: Literal["float32", "bfloat16"] = "float32"  # of both passes; parameters and optimiser stay float32

    def __post_init__(self) -> None:
        check_choice("compute.path", self.path, "fast", "plain")
        check_choice("compute.precision", self.precision, "float32", "bfloat16")


@dataclass(frozen=True)
class Config:
    """One run: one model, one seed, one task distribution."""

    task: TaskConfig = field(default_factory=TaskConfig)
    model: ModelConfig = field(default_factory=TransformerConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    measure: MeasureConfig = field(default_factory=MeasureConfig)
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    seed: int = 0  # of the initial parameters and the data, and of the teacher unless teacher_seed is set
    teacher_seed: int | None = None

    def __post_init__(self) -> None:
        if self.optimizer.weight_decay is None:
            weight_decay = getattr(paper.WEIGHT_DECAY, self.model.kind, paper.WEIGHT_DECAY.transformer)
            object.__setattr__(self, "optimizer", replace(self.optimizer, weight_decay=weight_decay))
        if getattr(self.model, "given_latent", False) and self.task.input_dim < self.task.num_modules:
            raise InputError("model.given_latent", True, f"needs task.input_dim ≥ {self.task.num_modules} modules")
        check_seed("seed", self.seed)
        if self.teacher_seed is not None:
            check_seed("teacher_seed", self.teacher_seed)

    def __repr__(self) -> str:
        task, steps = self.task, self.optimizer.num_steps
        sizes = f"N = {task.episode_length}, d = {task.input_dim}, h = {task.hidden_dim}"
        return f"Config({self.model.label} on {task.support.name}, {sizes}, {steps:,} steps, seed {self.seed})"

    def _repr_html_(self) -> str:
        """A table with a row for each group of fields."""
        groups = {"task": self.task, "model": self.model, "optimizer": self.optimizer}
        groups |= {"measure": self.measure, "compute": self.compute}
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
    groups |= {"measure": [MeasureConfig], "compute": [ComputeConfig]}
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
