"""Configurations as nested tables: reading and writing TOML, and overriding single fields."""

import dataclasses
import functools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

import tomli_w

from recombine.config.model import BASELINES, MODEL_CONFIGS, CustomModelConfig, ModelConfig, ModelKind, full_kind
from recombine.config.schema import Config, field_names
from recombine.config.task import VARIATIONS
from recombine.errors import InputError, suggestion
from recombine.files import read_named
from recombine.support.parse import parse_support, unparse_support
from recombine.support.support import Support

Tables = dict[str, Any]
"""Nested tables, as parsed from TOML."""

LARGEST_FILE = 10_000_000  # bytes; a configuration has some hundreds, and more with a long list of masks
LONGEST_NAME = 80  # characters that are shown of a field's name
DEEPEST = 16  # tables within tables; a configuration has three

_hints = functools.cache(get_type_hints)  # cached: it takes a third of the time of reading a configuration


def override(config: Config, data: Mapping[str, Any]) -> Config:
    """The configuration with the given fields changed. Unknown fields are errors that suggest the right one."""
    data = dict(data)
    if isinstance(model := data.get("model"), Mapping) and "kind" in model:
        kind = full_kind(model["kind"])
        data["model"] = {name: value for name, value in model.items() if name != "kind"}
        if kind != config.model.kind:
            optimizer = dataclasses.replace(config.optimizer, weight_decay=None)  # its value in Table 3
            config = dataclasses.replace(config, model=default_model(kind), optimizer=optimizer)
    return _override(config, _with_latent_dim(config, data), "")


def _with_latent_dim(config: Config, data: Tables) -> Tables:
    """The latent has a number for each module. If the changes bring another number of modules and do not set
    model.latent_dim, it becomes that number. A latent that had another size before keeps its size."""
    task, model = data.get("task"), data.get("model", {})
    if not (isinstance(task, Mapping) and "support" in task and isinstance(model, Mapping)):
        return data
    support, before = parse_support(task["support"]), config.task.num_modules
    same = support.num_modules == before or getattr(config.model, "latent_dim", None) != before
    if same or "latent_dim" in model:
        return data
    return {**data, "model": {**model, "latent_dim": support.num_modules}}


def default_model(kind: Any) -> ModelConfig:
    """The configuration of one of the paper's two models, with the sizes of Table 3, of a baseline or of a custom
    model."""
    kind, names = full_kind(kind), [*MODEL_CONFIGS, *BASELINES]
    if isinstance(kind, str) and ":" in kind:
        return CustomModelConfig(kind)
    if not isinstance(kind, str) or kind not in MODEL_CONFIGS:
        hint = suggestion(kind, names) if isinstance(kind, str) else ""
        raise InputError("model.kind", kind, f"one of {', '.join(names)}, or package.module:Class{hint}")
    return MODEL_CONFIGS[cast(ModelKind, kind)]()


def config_tables(config: Config) -> Tables:
    """The complete configuration as nested tables. Unset fields are left out: TOML has no null.

    So are the task's variations and the fields of `train` where they have the paper's value: runs of the paper's
    experiments are stored as they were before there were any.
    """
    data = dataclasses.asdict(config)
    task = {name: value for name, value in data["task"].items() if name not in VARIATIONS}
    data["task"] = task | {"support": unparse_support(config.task.support)} | config.task.variation
    data["model"] = {"kind": config.model.kind, **data["model"]}
    if isinstance(config.model, CustomModelConfig):
        data["model"]["options"] = dict(config.model.options)
    data["train"] = {name: value for name, value in data["train"].items() if value is not None} or None
    return {name: value for name, value in data.items() if value is not None}


def read_config(path: Path, base: Config) -> Config:
    """The configuration in a TOML file, on top of `base`."""
    return override(base, read_toml(path))


def read_toml(path: Path) -> Tables:
    return parse_toml(read_named("config", path, LARGEST_FILE), str(path))


def parse_toml(text: str, source: str) -> Tables:
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: a TOMLDecodeError, or an integer of thousands of digits
        raise InputError("config", source, f"is not valid TOML ({error})") from error
    if _deep(tables):
        raise InputError("config", source, f"tables are at most {DEEPEST} deep")
    return tables


def _deep(value: Any) -> bool:
    """Whether tables and lists are nested so deeply that a walk through them would end in an error."""
    layer = [value]
    for _ in range(DEEPEST):
        tables = [entry for entry in layer if isinstance(entry, dict)]
        lists = [entry for entry in layer if isinstance(entry, list)]
        layer = [inner for table in tables for inner in table.values()] + [inner for one in lists for inner in one]
    return bool(layer)


def parse_changes(changes: Sequence[str]) -> Tables:
    """('model.num_layers=3', 'task.support="connected"') as nested tables. A bare word is a string."""
    data: Tables = {}
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals or not all(part.isidentifier() for part in name.strip().split(".")):
            raise InputError("set", change, "FIELD=VALUE, such as model.num_layers=3")
        parsed = _parse_value(value)
        *tables, field = name.strip().split(".")
        if len(tables) >= DEEPEST or _deep(parsed):
            raise InputError("set", change, f"tables are at most {DEEPEST} deep")
        table = data
        for part in tables:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise InputError("set", change, "the field is given both a value and subfields")
        if field in table:
            raise InputError("set", change, "the field is set twice")
        table[field] = parsed
    return data


def _parse_value(text: str) -> Any:
    try:
        found = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return found["value"] if len(found) == 1 else text  # a line break in it would begin another field


def stored_config(tables: Mapping[str, Any]) -> Config:
    """The configuration in a run directory, complete as `write_toml` wrote it. It may not refer to other files."""
    task = tables.get("task")
    support = task.get("support") if isinstance(task, Mapping) else None
    if isinstance(support, str):
        raise InputError("task.support", support, "in a run directory it is a table with its masks")
    return override(Config(), tables)


def write_toml(config: Config) -> str:
    """The configuration as the text of a TOML file that `read_config` reads back."""
    return tomli_w.dumps(config_tables(config))


def _override(config: Any, data: Mapping[str, Any], prefix: str) -> Any:
    known = [f.name for f in fields(config)]
    changes: Tables = {}
    for name, value in data.items():
        path = f"{prefix}{name}"
        if name not in known:
            path = path if len(path) <= LONGEST_NAME else f"{path[:LONGEST_NAME]}..."
            hint = _elsewhere(name, prefix) or _of_another_model(name, path, known) or suggestion(name, known)
            raise InputError(path, value, f"no such field{hint}; there are {', '.join(known)}")
        current = getattr(config, name)
        if isinstance(current, Support):
            changes[name] = parse_support(value)
        elif path in ("model.options", "task.options"):
            if not isinstance(value, Mapping):
                raise InputError(path, value, "a table of options")
            changes[name] = tuple((dict(current) | dict(value)).items())
        elif dataclasses.is_dataclass(current):
            if not isinstance(value, Mapping):
                raise InputError(path, value, f"a table with the fields {', '.join(f.name for f in fields(current))}")
            changes[name] = _override(current, value, f"{path}.")
        else:
            # An integer is accepted for a float field: 1 means 1.0, as in the paper's Table 3.
            hint = _hints(type(config))[name]
            is_float = float in (hint, *get_args(hint))
            changes[name] = float(value) if is_float and type(value) is int and abs(value) < 2**1000 else value
    return dataclasses.replace(config, **changes)


def _elsewhere(name: str, prefix: str) -> str:
    """' (did you mean …?)' if a field of this name is in another table, otherwise the empty string."""
    if name == "num_modules":
        return " (the support has the number of modules: task.support=2-hot:8)"
    places = [f"{table}.{name}" for table, names in field_names().items() if name in names and prefix != f"{table}."]
    return f" (did you mean {' or '.join(places)}?)" if places else ""


def _of_another_model(name: str, path: str, known: Sequence[str]) -> str:
    """A hint if another model has a field of this name. A baseline or a custom model may have it among its options."""
    owners = [kind for kind, config in MODEL_CONFIGS.items() if name in (f.name for f in fields(config))]
    if path != f"model.{name}" or not owners:
        return ""
    if "options" in known:
        return f" (did you mean model.options.{name}?)"
    return f" (the {owners[0]} has it: --model {owners[0]})"


def other_model(changed: Mapping[str, tuple[Any, Any]]) -> str | None:
    """The model that a run has, if another one is wanted. A class that only moved to another module is the same."""
    old, new = changed.get("model.kind", ("", ""))
    return old if old.rpartition(":")[2] != new.rpartition(":")[2] else None


def differences(old: Any, new: Any, prefix: str = "") -> dict[str, tuple[Any, Any]]:
    """Every field in which two tables differ: {'model.num_layers': (2, 3)}."""
    if isinstance(old, dict) and isinstance(new, dict):
        found: dict[str, tuple[Any, Any]] = {}
        for name in sorted(old.keys() | new.keys()):
            found |= differences(old.get(name), new.get(name), f"{prefix}.{name}" if prefix else name)
        return found
    return {} if old == new else {prefix: (old, new)}
