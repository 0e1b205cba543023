"""`rc.configure`: the configuration of a run, from a preset and changes."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from recombine.config.preset import Preset, preset_config
from recombine.config.schema import Config
from recombine.config.toml import Tables, override
from recombine.errors import InputError


def configure(
    model: "str | type | Config | None" = None,
    *,
    preset: Preset = "quick",
    changes: Mapping[str, Any] | None = None,
    seed: int | None = None,
) -> Config:
    """A configuration: that of a preset, with some fields changed.

    `model` is "transformer" (the default), "hypertransformer", "package.module:Class", a class of your own, or a whole
    configuration to change. `changes` maps fields to values: {"model.num_layers": 3, "task.support": "connected"}.
    """
    config = model if isinstance(model, Config) else preset_config(preset, model_kind(model or "transformer"))
    config = override(config, nested(changes or {}))
    return config if seed is None else replace(config, seed=seed)


def model_kind(model: "str | type") -> str:
    """The kind of a model, as configurations name it. A class is registered under its own name: it is in the caller's
    hands, so nothing needs to be imported."""
    if isinstance(model, str) and ":" not in model:
        return model
    from recombine.model.custom import import_model, register_model
    from recombine.run.machine import prepare

    prepare()  # before a model starts JAX
    return (import_model(model) if isinstance(model, str) else register_model(model)).kind


def nested(changes: Mapping[str, Any]) -> Tables:
    """{'model.num_layers': 3} as {'model': {'num_layers': 3}}; tables may also be nested already."""
    found: Tables = {}
    for name, value in _flat(changes):
        *tables, field = name.split(".")
        table = found
        for part in tables:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise InputError("changes", name, "the field is given both a value and subfields")
        if field in table:
            raise InputError("changes", name, "the field is set twice")
        table[field] = value
    return found


def _flat(changes: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every field by its whole name. A support may be a table, too: it is one value."""
    for name, value in changes.items():
        if not isinstance(name, str):
            raise InputError("changes", name, "the name of a field, such as model.num_layers")
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and path != "task.support":
            yield from _flat(value, f"{path}.")
        else:
            yield path, value
