"""Presets: the paper's settings, and smaller ones."""

from typing import Literal, get_args

from recombine.config.schema import MODEL_CONFIGS, Config
from recombine.config.toml import Tables, default_model, override
from recombine.errors import InputError

Preset = Literal["smoke", "quick", "paper"]


def preset_config(preset: Preset, kind: str) -> Config:
    """A preset's configuration for one of the two models, or for a custom model (whose sizes it leaves alone).

    paper: Tables 2 and 3. quick: small enough to train in minutes. smoke: a few seconds, to test that everything runs.
    """
    model = default_model(kind)  # refuses what is not a kind, not even a word
    changes = _changes(preset, kind)
    if kind not in MODEL_CONFIGS:
        changes.pop("model", None)
    return override(Config(model=model), changes)


def _changes(preset: Preset, kind: str) -> Tables:
    match preset:
        case "paper":
            return {}
        case "quick":
            return {
                "task": {"input_dim": 8, "hidden_dim": 8, "episode_length": 16},
                "model": {"embed_dim": 64 if kind == "transformer" else 32},
                "optimizer": {"num_steps": 10_000},
                "measure": {"episodes": 1_600},
            }
        case "smoke":
            return {
                "task": {"input_dim": 4, "hidden_dim": 4, "episode_length": 8},
                "model": {"embed_dim": 16},
                "optimizer": {"num_steps": 40, "batch_size": 16},
                "measure": {"episodes": 64, "snapshots": 4},
            }
        case _:
            raise InputError("preset", preset, f"one of {', '.join(get_args(Preset))}")
