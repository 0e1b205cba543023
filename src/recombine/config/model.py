"""The configuration of the models. Each field that the paper leaves open is explained in docs/decisions.md."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from recombine import paper
from recombine.checks import check_bool, check_choice, check_class, check_number, check_options, check_size
from recombine.errors import InputError

ModelKind = Literal["transformer", "hypertransformer"]
ExtraPair = Literal["latent", "query"]  # shown to a model besides the context: (z, 0), or (x_N, y_N) with its label
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
EXPLICIT = "explicit-"  # and the number of steps: the label of a hypertransformer with explicit inference
EXPLICIT_STEPS = 3  # of the scorecard, and of the models that are trained with explicit inference by default
SEES_LABEL = "hypertransformer (sees the query label)"  # no class can have this name


def full_kind(kind: Any) -> Any:
    """The class of a baseline that is named by its short name. Everything else is left as it is."""
    return BASELINES.get(kind, kind) if isinstance(kind, str) else kind


@dataclass(frozen=True)
class TrunkConfig:
    """The trunk that the two models share: embedding and blocks. Paper: Appendix C.3 (app:architecture)."""

    embed_dim: int  # the width of the residual stream
    num_heads: int  # attention heads in each block
    num_layers: int  # number of blocks: attention, then a feed-forward network
    ffn_factor: int  # hidden units of the feed-forward network, as a multiple of the width
    causal: bool = False  # a token attends only to itself and earlier tokens
    position_bias: Literal["per_block", "shared", "none"] = "per_block"  # T5's relative position bias
    scale_scores: bool = True  # multiply attention scores by 1/√d_head; T5 itself does not
    final_norm: bool = True  # a LayerNorm after the last block
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
    latent_dim: int = paper.LATENT_DIM.hypertransformer  # size of the latent: modules the model learns
    hidden_dim: int = paper.MAIN_HIDDEN_DIM.hypertransformer  # hidden units of the generated layer
    base_weights: bool = False  # learn a θ̂₀ in addition to the modules
    init_scale: float = 1.0  # standard deviation of the generated layer's pre-activations at the start
    unit_norm: bool = False  # divide the generated layer by its operator norm, as the teacher does
    scaled_forward: bool = False  # divide the generated layer by √d in the forward pass, not its modules at the start
    literal_input: bool = False  # the input as printed: the context includes the query's pair (x_N, y_N) with its label
    inference_steps: int = 0  # steps of explicit inference on the latent; 0: the paper's model

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
        return f"{EXPLICIT}{self.inference_steps}" if self.inference_steps else self.kind


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
