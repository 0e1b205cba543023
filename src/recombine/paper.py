"""The paper's own numbers: every number that the code takes from the paper, each defined once.

"When can transformers compositionally generalize in-context?", Kobayashi, Schug, Akram, Redhardt, von Oswald,
Pascanu, Lajoie, Sacramento, 2024. Where the paper leaves a choice open, `docs/decisions.md` records ours.
"""

from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

# Sizes of the task (Paper: Appendix C.1, app:task_generation).
NUM_MODULES = 6
INPUT_DIM = 16
HIDDEN_DIM = 16

# Table 1 (tab:task_distribution): the masks each support trains on. One character per module.
SUPPORTS: dict[str, tuple[str, ...]] = {
    "connected": ("110000", "011000", "001100", "000110", "000011", "100001"),
    "disconnected": ("110000", "011000", "101000", "000110", "000011", "000101"),
    "connected+": (
        "110000", "011000", "001100", "000110", "000011", "100001",
        "101000", "010100", "001010", "000101", "100010", "010001",
    ),
}  # fmt: skip
DEFAULT_SUPPORT = "connected+"  # "For all other experiments, we use the masks of Connected+"

# Training and evaluation (Paper: Appendix C.2, app:metric).
EVAL_EPISODES = 16_000  # "The score is averaged over 16000 OOD sequences"
PROBE_STRENGTH = 1.0  # "Ridge regression, with regularization strength 1"

# Table 2: implementation and optimisation details (AdamW, cosine annealing, relative positions, no mask).
NUM_STEPS = 100_000


class Hyperparameter(NamedTuple, Generic[T]):
    """A row of Table 3: the values selected for the two models, and the sweep."""

    transformer: T
    hypertransformer: T
    sweep: tuple[T, ...]


class HypertransformerOnly(NamedTuple):
    """A row of Table 3 that says NA for the transformer."""

    hypertransformer: int
    sweep: tuple[int, ...]


# Table 3: hyperparameters.
EMBED_DIM = Hyperparameter(128, 64, (32, 64, 128, 256))
NUM_HEADS = Hyperparameter(4, 4, (1, 2, 4))
NUM_LAYERS = Hyperparameter(2, 2, (1, 2, 3, 4, 6))
FFN_FACTOR = Hyperparameter(4, 4, (4,))
LATENT_DIM = HypertransformerOnly(6, (6, 8, 12))
MAIN_HIDDEN_DIM = HypertransformerOnly(32, (16, 32))
LEARNING_RATE = Hyperparameter(0.001, 0.001, (0.003, 0.001, 0.0003))
WEIGHT_DECAY = Hyperparameter(0.1, 0.0, (0.0, 0.1))
CLIP_NORM = Hyperparameter(1.0, 1.0, (1.0,))
BATCH_SIZE = Hyperparameter(128, 128, (128,))
