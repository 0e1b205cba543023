"""Presets: the paper's settings, and smaller ones."""

from typing import Any, Literal, get_args

from recombine import paper
from recombine.config import MODEL_CONFIGS, Config, ModelKind, OptimizerConfig
from recombine.config_file import override
from recombine.errors import InputError

Preset = Literal["smoke", "quick", "paper"]


def preset_config(preset: Preset, kind: ModelKind) -> Config:
    """A preset's configuration for one of the two models.

    paper: Tables 2 and 3. quick: the same question, small enough for minutes. smoke: seconds, to see that it runs.
    """
    optimizer = OptimizerConfig(
        learning_rate=getattr(paper.LEARNING_RATE, kind),
        weight_decay=getattr(paper.WEIGHT_DECAY, kind),
        clip_norm=getattr(paper.CLIP_NORM, kind),
        batch_size=getattr(paper.BATCH_SIZE, kind),
    )
    config = Config(model=MODEL_CONFIGS[kind](), optimizer=optimizer)
    return override(config, _changes(preset, kind))


def _changes(preset: Preset, kind: ModelKind) -> dict[str, Any]:
    match preset:
        case "paper":
            return {}
        case "quick":
            return {
                "task": {"input_dim": 8, "hidden_dim": 8},
                "model": {"embed_dim": 64 if kind == "transformer" else 32},
                "optimizer": {"num_steps": 1_000},
                "measure": {"episodes": 4_000},
            }
        case "smoke":
            return {
                "task": {"input_dim": 4, "hidden_dim": 4, "episode_length": 8},
                "model": {"embed_dim": 16},
                "optimizer": {"num_steps": 40, "batch_size": 16},
                "measure": {"episodes": 64},
            }
        case _:
            raise InputError("preset", preset, f"one of {', '.join(get_args(Preset))}")
