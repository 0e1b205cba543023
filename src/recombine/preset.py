"""Presets: the paper's settings, and smaller ones."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

from recombine.config import MODEL_CONFIGS, Config, ModelKind
from recombine.config_file import override
from recombine.errors import InputError

Preset = Literal["smoke", "quick", "paper"]


def preset_config(preset: Preset, kind: ModelKind) -> Config:
    """A preset's configuration for one of the two models.

    paper: Tables 2 and 3. quick: the same question, small enough for minutes. smoke: seconds, to see that it runs.
    """
    config = Config(model=MODEL_CONFIGS[kind]())
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
                "measure": {"episodes": 64, "snapshots": 4},
            }
        case _:
            raise InputError("preset", preset, f"one of {', '.join(get_args(Preset))}")


def reproduce_configs(preset: Preset, changes: Mapping[str, Any], seed: int | None) -> dict[ModelKind, Config]:
    """Both models' configurations: the preset, then the changes to both, then those under a model's own name."""
    shared = {name: value for name, value in changes.items() if name not in MODEL_CONFIGS}
    _refuse_kind("model.kind", shared)
    configs: dict[ModelKind, Config] = {}
    for kind in MODEL_CONFIGS:
        own = changes.get(kind, {})
        if not isinstance(own, Mapping):
            raise InputError(kind, own, f"a table of changes to the {kind} alone, such as [{kind}.model]")
        if only := sorted(own.keys() - {"model", "optimizer"}):
            raise InputError(f"{kind}.{only[0]}", own[only[0]], "both models share it; only model and optimizer differ")
        _refuse_kind(f"{kind}.model.kind", own)
        config = override(override(preset_config(preset, kind), shared), own)
        configs[kind] = config if seed is None else replace(config, seed=seed)
    return configs


def _refuse_kind(field: str, changes: Mapping[str, Any]) -> None:
    if isinstance(model := changes.get("model"), Mapping) and "kind" in model:
        raise InputError(field, model["kind"], "both models are trained; leave it out")
