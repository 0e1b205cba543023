"""Presets: the paper's settings, and smaller ones."""

from typing import Literal, get_args

from recombine.config.model import BASELINES, MODEL_CONFIGS
from recombine.config.schema import Config
from recombine.config.toml import Tables, default_model, override
from recombine.errors import InputError

Preset = Literal["smoke", "quick", "paper"]
SMALLER = ("hypertransformer", BASELINES["perceiver"])  # half as wide, as in Table 3
# The baselines with a width: the bottleneck has the hypertransformer's sizes, the hypernetwork has no transformer.
SIZED = tuple(kind for name, kind in BASELINES.items() if name not in ("bottleneck", "hypernetwork"))


def preset_config(preset: Preset, kind: str) -> Config:
    """A preset's configuration for a model. It sets the width of the paper's two models and of most baselines, and
    leaves the sizes of a custom model alone.

    paper: Tables 2 and 3. quick: small enough to train in minutes. smoke: a few seconds, to test that everything runs.
    """
    model = default_model(kind)  # refuses anything that is not a kind
    kind, changes = model.kind, _changes(preset, model.kind)
    if kind in SIZED and "model" in changes:
        changes["model"] = {"options": changes["model"]}
    elif kind not in MODEL_CONFIGS:
        changes.pop("model", None)
    return override(Config(model=model), changes)


def _changes(preset: Preset, kind: str) -> Tables:
    match preset:
        case "paper":
            return {}
        case "quick":
            return {
                "task": {"input_dim": 8, "hidden_dim": 8, "episode_length": 16},
                "model": {"embed_dim": 32 if kind in SMALLER else 64},
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
