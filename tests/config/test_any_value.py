"""Whatever is given to any field, the answer is a configuration, or an `InputError` of one short line."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import tomli_w
from hypothesis import example, given
from hypothesis import strategies as st

from recombine.cli.train import Train
from recombine.config.preset import preset_config
from recombine.config.schema import Config
from recombine.config.toml import override, parse_changes, parse_toml
from recombine.errors import InputError
from recombine.jobs.grid import parse_grid
from tests.config.test_config import nested

LONGEST = 1000  # characters; the longest lines are those that list all fields


def field_names(config: Any, prefix: str = "") -> Iterator[str]:
    for one in dataclasses.fields(config):
        yield f"{prefix}{one.name}"
        if dataclasses.is_dataclass(inner := getattr(config, one.name)):
            yield from field_names(inner, f"{prefix}{one.name}.")


FIELDS = sorted({"model.kind", "model.options", *(
    name for kind in ("transformer", "hypertransformer") for name in field_names(preset_config("smoke", kind))
)})  # fmt: skip
WORDS = st.sampled_from(
    ["transformer", "informed", "a:b", "a.b:C", "connected", "2-hot:99", "110,011", "None", "/", ""]
)
LEAVES = st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.dates() | st.datetimes() | st.times()
KEYS = st.sampled_from([name.rpartition(".")[2] for name in FIELDS]) | st.text(max_size=5)
VALUES = st.recursive(
    LEAVES | WORDS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


def accepts(make: Any) -> bool:
    try:
        assert isinstance(make(), Config)
    except InputError as refused:
        assert len(str(refused).splitlines()) == 1
        assert len(str(refused)) < LONGEST
        return False
    return True


def toml(value: Any) -> str:
    """The value as it stands in a TOML file, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{tomli_w.dumps({key: 0})[:-5]} = {toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return tomli_w.dumps({"v": value}).removeprefix("v = ").rstrip("\n")


@given(st.sampled_from(FIELDS), VALUES | st.none())
@example("model.kind", [])
@example("model.kind", {"a": {}})
def test_values_in_a_table(field: str, value: Any) -> None:
    accepts(lambda: override(Config(), nested(field, value)))


@given(st.sampled_from(FIELDS), VALUES.map(toml) | st.text(max_size=30))
@example("model.kind", "[]")
@example("model", "{}")
@example("seed", "[" * 5000)
@example("seed", "9" * 10_000)
@example("task.support", "{" + "a." * 5000 + "b = 1}")
def test_values_on_the_command_line(field: str, text: str) -> None:
    accepts(lambda: Train(preset="smoke", set=(f"{field}={text}",))._config())


@given(st.lists(st.tuples(st.sampled_from(FIELDS) | st.text(max_size=10), WORDS | st.text(max_size=5)), max_size=4))
@example([("x" * 100_000, "1")])
@example([("x." * 5000 + "y", "1")])
@example([("task.support." * 500 + "y", "1")])
@example([("séed", "1")])
@example([("seed", "1"), ("seed", "2")])
def test_several_changes(changes: list[tuple[str, str]]) -> None:
    accepts(lambda: Train(preset="smoke", set=tuple(f"{name}={value}" for name, value in changes))._config())


def test_a_line_break_begins_no_other_field() -> None:
    with pytest.raises(InputError, match="seed"):
        override(Config(), parse_changes(["seed=1\nmodel=3"]))


@pytest.mark.parametrize(
    "text", ["a." * 5000 + "b = 1", f"[{'a.' * 5000}b]\nc = 1", "[grid]\n" + "a." * 5000 + "b = [1]"]
)
def test_tables_thousands_deep(text: str) -> None:
    with pytest.raises(InputError):
        parse_grid(parse_toml(text, "deep.toml"))
