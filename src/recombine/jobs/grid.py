"""Grids: the configurations of a sweep.

A grid file is TOML. `[grid]` lists fields and their values; every combination is a configuration. `[each]` also lists
fields and values, but changes only one of them at a time: it adds the unchanged configuration and each single change.
`[[exclude]]` lists combinations to leave out. All other tables are changes to every configuration.

    [grid]
    "model.embed_dim" = [16, 32]
    "optimizer.learning_rate" = [0.001, 0.003]
    [[exclude]]
    "model.embed_dim" = 16
    "optimizer.learning_rate" = 0.003
    [optimizer]
    num_steps = 5000
"""

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

from recombine import paper
from recombine.config.preset import Preset, preset_config
from recombine.config.schema import Config
from recombine.config.toml import Tables, override, read_toml
from recombine.errors import InputError, suggestion
from recombine.files import check_path
from recombine.record.sweep import SweepLine

MOST_CONFIGURATIONS = 100_000
OWN_TABLES = ("grid", "each", "exclude")  # of a grid file; all other tables are those of a configuration
LONGEST_NAME = 160  # characters; file systems allow 255 bytes

GridPoint = Mapping[str, Any]
"""The values of the fields that the grid varies, for one configuration."""


@dataclass(frozen=True)
class Grid:
    """The content of a grid file."""

    fields: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    each: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    exclude: Sequence[GridPoint] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)

    def points(self) -> Iterator[GridPoint]:
        """The combinations that are not excluded, the last field changing fastest."""
        names = list(self.fields)
        singles = [{}] + [{name: value} for name, values in self.each.items() for value in values]
        for values in product(*self.fields.values()):
            for single in singles:
                point = dict(zip(names, values, strict=True)) | single
                if not any(all(_is(point.get(name), value) for name, value in out.items()) for out in self.exclude):
                    yield point


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep."""

    name: str
    config: Config
    point: GridPoint

    def line(self) -> SweepLine:
        """The run's line in `sweep.jsonl`."""
        seed = self.config.seed
        configuration = self.name.removesuffix(f"-seed{seed}")
        return SweepLine(self.name, configuration, seed, dict(self.point), self.config.optimizer.num_steps)


def paper_grid(kind: str) -> Grid:
    """Table 3: the paper's hyperparameter search for one of its two models."""
    fields: dict[str, Sequence[Any]] = {
        "model.kind": (kind,),
        "model.embed_dim": paper.EMBED_DIM.sweep,
        "model.num_heads": paper.NUM_HEADS.sweep,
        "model.num_layers": paper.NUM_LAYERS.sweep,
        "model.ffn_factor": paper.FFN_FACTOR.sweep,
        "optimizer.learning_rate": paper.LEARNING_RATE.sweep,
        "optimizer.weight_decay": paper.WEIGHT_DECAY.sweep,
        "optimizer.clip_norm": paper.CLIP_NORM.sweep,
        "optimizer.batch_size": paper.BATCH_SIZE.sweep,
    }
    if kind == "hypertransformer":
        fields |= {"model.latent_dim": paper.LATENT_DIM.sweep, "model.hidden_dim": paper.MAIN_HIDDEN_DIM.sweep}
    return Grid(fields)


NAMED = {f"paper-{kind}": kind for kind in ("transformer", "hypertransformer")}


def read_grid(spec: str) -> Grid:
    """`paper-transformer`, `paper-hypertransformer`, or a file."""
    if spec in NAMED:
        return paper_grid(NAMED[spec])
    path = Path(spec)
    check_path("grid", path)
    if not path.is_file():
        hint = suggestion(spec, list(NAMED))
        raise InputError("grid", spec, f"{', '.join(NAMED)}, or a TOML file; there is no such file{hint}")
    try:
        tables = read_toml(path)
    except InputError as error:
        raise InputError("grid", error.value, error.expected) from error
    return parse_grid(tables)


def parse_grid(tables: Mapping[str, Any]) -> Grid:
    rest = {name: table for name, table in tables.items() if name not in OWN_TABLES}
    parts = [part.name for part in dataclass_fields(Config)]
    if foreign := [name for name in rest if name not in parts]:
        hint = suggestion(foreign[0], [*OWN_TABLES, *parts])
        raise InputError(
            foreign[0], rest[foreign[0]], f"no such table{hint}; {', '.join(OWN_TABLES)}, or {', '.join(parts)}"
        )
    fields, each = (_fields(name, tables.get(name, {})) for name in ("grid", "each"))
    if not fields and not each:
        raise InputError("grid", rest, 'a table [grid], such as "model.embed_dim" = [16, 32]')
    if both := fields.keys() & each.keys():
        raise InputError(f"each.{min(both)}", list(each[min(both)]), "is already in [grid]")
    _check_fields(fields, each, rest)
    exclude = tables.get("exclude", [])
    if not isinstance(exclude, list) or not all(isinstance(one, Mapping) for one in exclude):
        raise InputError("exclude", exclude, 'tables [[exclude]], such as "model.embed_dim" = 16')
    flat = [dict(_flat(one)) for one in exclude]
    for one in flat:
        for name in one:
            if name not in fields and name not in each:
                hint = suggestion(name, [*fields, *each])
                raise InputError(f"exclude.{name}", one[name], f"not a field of [grid] or [each]{hint}")
            values = fields[name] if name in fields else each[name]
            if not any(_is(value, one[name]) for value in values):
                shown = ", ".join(map(value_name, values))
                raise InputError(f"exclude.{name}", one[name], f"not a value in the grid, which has {shown}")
        if len(one.keys() & each.keys()) > 1:
            raise InputError("exclude", one, "[each] changes only one field at a time; name only one of its fields")
        if not one:
            raise InputError("exclude", one, "names no field, so it would exclude everything")
    return Grid(fields, each, flat, rest)


def _check_fields(fields: Mapping[str, Any], each: Mapping[str, Any], rest: Mapping[str, Any]) -> None:
    """Refuse fields that are named twice, or that contain another field."""
    if "seed" in rest:
        raise InputError("seed", rest["seed"], "seeds are named on the command line: --seed and --seeds")
    names = [*fields, *each]
    for name in names:
        if inside := next((other for other in names if other.startswith(f"{name}.")), None):
            raise InputError(f"grid.{name}", {**fields, **each}[name], f"a table, and {inside} is a field of it")
    if twice := sorted(set(names) & dict(_flat(rest)).keys()):
        raise InputError(twice[0], dict(_flat(rest))[twice[0]], "is also in the grid; name it once")
    for kind in {**fields, **each}.get("model.kind", ()):
        if not isinstance(kind, str):
            raise InputError("grid.model.kind", kind, "a model's name")


def _fields(table: str, given: Any) -> dict[str, list[Any]]:
    if not isinstance(given, Mapping):
        raise InputError(table, given, "a table of fields and their values")
    pairs = list(_flat(given))
    found = dict(pairs)
    if len(found) < len(pairs):
        name = next(name for i, (name, _) in enumerate(pairs) if name in dict(pairs[:i]))
        raise InputError(f"{table}.{name}", found[name], "is named twice")
    for name, values in found.items():
        if not isinstance(values, list) or not values:
            raise InputError(f"{table}.{name}", values, "a list of values, at least one")
        if len({repr(value) for value in values}) < len(values):
            raise InputError(f"{table}.{name}", values, "names a value twice")
        if name == "seed":
            raise InputError(f"{table}.seed", values, "seeds are named on the command line: --seed and --seeds")
    return found


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Fields by their full names, whether written as "model.embed_dim" or as a nested table."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def sweep_runs(grid: Grid, preset: Preset, seeds: Sequence[int], sample: int | None = None) -> list[SweepRun]:
    """Every configuration of the grid with every seed; all configurations of one seed come before the next seed.

    `sample` limits this to a random subset of that many configurations, the same subset every time.
    """
    points: list[GridPoint] = []
    for point in grid.points():
        points.append(point)
        if len(points) > MOST_CONFIGURATIONS:
            raise InputError("grid", len(points), f"more than {MOST_CONFIGURATIONS:,} configurations")
    if not points:
        raise InputError("exclude", list(grid.exclude), "excludes every configuration of the grid")
    if sample is not None and sample < len(points):
        chosen = sorted(random.Random(0).sample(range(len(points)), sample))
        points = [points[i] for i in chosen]
    configs: dict[Config, GridPoint] = {}
    for point in points:
        configs.setdefault(_config(grid, preset, point), point)  # with [each], some may be equal: keep one
    shown = [name for name in (*grid.fields, *grid.each) if name != "model.kind"]
    runs = [
        SweepRun(f"{_name(config, point, shown)}-seed{seed}", replace(config, seed=seed), point)
        for seed in seeds
        for config, point in configs.items()
    ]
    if len({run.name for run in runs}) < len(runs):
        twice = next(name for name, count in Counter(run.name for run in runs).items() if count > 1)
        advice = "; name supports differently" if "task.support" in (*grid.fields, *grid.each) else ""
        raise InputError("grid", twice, f"two configurations would have this name{advice}")
    return runs


def _config(grid: Grid, preset: Preset, point: GridPoint) -> Config:
    nested: Tables = {}
    for name, value in point.items():
        *tables, last = name.split(".")
        table = nested
        for part in tables:
            table = table.setdefault(part, {})
        table[last] = value
    model = grid.changes.get("model")
    kind = point.get("model.kind", model.get("kind") if isinstance(model, Mapping) else None) or "transformer"
    try:
        return override(override(preset_config(preset, kind), grid.changes), nested)
    except InputError as error:
        alone = "no such field" in error.expected or len(point) == 1
        where = ", ".join(f"{name} = {value}" for name, value in ({"model.kind": kind} | dict(point)).items())
        advice = "" if alone else "; [[exclude]] it?"
        raise InputError(error.field, error.value, f"{error.expected} (in the grid: {where}{advice})") from None


def _is(value: Any, named: Any) -> bool:
    """Whether a value is the one that [[exclude]] names. A support that is written out is named by its name."""
    return value == named or (isinstance(value, Mapping) and value.get("name") == named)


def value_name(value: Any) -> str:
    """The name of a field's value. A support that is written out has its own name."""
    return str(value["name"] if isinstance(value, Mapping) and "name" in value else value)


def short_names(fields: Sequence[str]) -> dict[str, str]:
    """Short names of fields: the last word, if no other field has the same."""
    last = [name.rpartition(".")[2] for name in fields]
    return {name: (short if last.count(short) == 1 else name) for name, short in zip(fields, last, strict=True)}


def _name(config: Config, point: GridPoint, shown: Sequence[str]) -> str:
    """The name of a configuration: the model and the values, made safe for a directory name."""
    words = short_names(shown)
    values = ",".join(f"{words[name]}={_safe(point[name])}" for name in shown if name in point)
    if len(values) > LONGEST_NAME:
        values = sha256(values.encode()).hexdigest()[:12]
    return f"{_safe(config.model.label)}-{values or 'base'}"


def _safe(value: Any) -> str:
    return re.sub(r"[^\w+.-]", "_", value_name(value))
