"""The configuration: what is read, what is refused, and any value at all."""

import dataclasses
import math
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import example, given
from hypothesis import strategies as st

from recombine.cli.train import Train
from recombine.config.model import CustomModelConfig, HypertransformerConfig, TransformerConfig
from recombine.config.preset import preset_config
from recombine.config.schema import Config
from recombine.config.task import TaskConfig
from recombine.config.toml import (
    config_tables,
    override,
    parse_changes,
    parse_toml,
    read_config,
    stored_config,
    write_toml,
)
from recombine.errors import InputError
from recombine.jobs.grid import parse_grid

INTEGERS = [
    "task.input_dim", "task.hidden_dim", "task.episode_length", "model.embed_dim", "model.num_heads",
    "model.num_layers", "model.ffn_factor", "optimizer.num_steps", "optimizer.batch_size", "measure.episodes",
]  # fmt: skip
NUMBERS = ["optimizer.learning_rate", "optimizer.weight_decay", "optimizer.clip_norm", "optimizer.final_fraction"]
BAD_INTEGERS = [0, -1, 2**63, 16**5000, 1.5, 4.0, math.nan, math.inf, True, "4", None, [4]]
BAD_NUMBERS = [-1.0, math.nan, math.inf, -math.inf, 1e308, 2**63 * 10**40, 10**400, 16**5000, True, "1"]


def nested(path: str, value: Any) -> dict[str, Any]:
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


@pytest.mark.parametrize("field", INTEGERS)
@pytest.mark.parametrize("value", BAD_INTEGERS, ids=range(len(BAD_INTEGERS)))
def test_bad_integers(field: str, value: Any) -> None:
    with pytest.raises(InputError) as refused:
        override(Config(), nested(field, value))
    assert refused.value.field == field
    assert "integer from" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("field", NUMBERS)
@pytest.mark.parametrize("value", BAD_NUMBERS, ids=range(len(BAD_NUMBERS)))
def test_bad_numbers(field: str, value: Any) -> None:
    with pytest.raises(InputError) as refused:
        override(Config(), nested(field, value))
    assert refused.value.field == field
    assert "a number" in str(refused.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {"num_heads": 3}}, "model.num_heads = 3: must divide model.embed_dim = 128"),
        ({"model": {"embed_dim": 130}}, "model.num_heads = 4: must divide model.embed_dim = 130"),
        ({"modle": {}}, "did you mean 'model'?"),
        ({"num_steps": 3}, "did you mean optimizer.num_steps?"),
        ({"task": {"num_modules": 8}}, "task.support=2-hot:8"),
        ({"model": {"embed_dmi": 64}}, "model.embed_dmi = 64: no such field (did you mean 'embed_dim'?)"),
        ({"model": {"latent_dim": 6}}, "model.latent_dim = 6: no such field (the hypertransformer"),
        ({"model": {"kind": "hypertransfomer"}}, "did you mean 'hypertransformer'?"),
        ({"model": 3}, "model = 3: a table with the fields"),
        ({"model": {"causal": 1}}, "model.causal = 1: true or false"),
        ({"model": {"position_bias": "rotary"}}, "one of per_block, shared, none"),
        ({"optimizer": {"warmup_steps": 100_000}}, "optimizer.warmup_steps = 100000: an integer from 0 to 99999"),
        ({"optimizer": {"learning_rate": 0}}, "optimizer.learning_rate = 0.0: a number above 0"),
        ({"task": {"episode_length": 1}}, "task.episode_length = 1: an integer from 2"),
        ({"task": {"support": "conected"}}, "did you mean 'connected'?"),
        ({"task": {"support": 3}}, "support = 3: give a name"),
        ({"seed": -1}, "seed = -1: an integer from 0 to 4294967295"),
        ({"teacher_seed": 2**32}, "teacher_seed = 4294967296"),
        ({"": 1}, "no such field"),
    ],
    ids=repr,
)
def test_bad_configurations(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        override(Config(), change)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_field_of_another_model_is_an_option_of_a_baseline() -> None:
    with pytest.raises(InputError, match=r"did you mean model\.options\.embed_dim\?"):
        override(preset_config("smoke", "bottleneck"), {"model": {"embed_dim": 8}})


def test_construction_validates_too() -> None:
    with pytest.raises(InputError):
        TransformerConfig(num_heads=5)
    with pytest.raises(InputError):
        HypertransformerConfig(latent_dim=0)
    with pytest.raises(InputError):
        TaskConfig(episode_length=1)
    with pytest.raises(InputError):
        dataclasses.replace(Config(), seed=-1)


@pytest.mark.parametrize(
    "text",
    [
        "[model",
        "a = ",
        'x = "unterminated',
        "\x00",
        "seed = 1\nseed = 2",
        "a = " + "[" * 10_000,
        "seed = " + "1" * 5000,
    ],
    ids=lambda t: repr(t[:20]),
)
def test_malformed_toml(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(InputError, match="is not valid TOML"):
        read_config(path, Config())


def test_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "missing.toml", tmp_path, tmp_path / "binary.toml"):
        with pytest.raises(InputError, match="cannot be read"):
            read_config(path, Config())


@pytest.mark.parametrize("kind", ["transformer", "hypertransformer"])
@pytest.mark.parametrize("preset", ["smoke", "quick", "paper"])
def test_toml_round_trip(tmp_path: Path, preset: Any, kind: Any) -> None:
    """The written file is complete: read on top of any other configuration, it gives the original back."""
    config = dataclasses.replace(preset_config(preset, kind), seed=3, teacher_seed=5)
    path = tmp_path / "config.toml"
    path.write_text(write_toml(config))
    assert read_config(path, Config()) == config
    assert read_config(path, Config(model=HypertransformerConfig())) == config


def test_a_custom_support_survives_the_round_trip(tmp_path: Path) -> None:
    config = override(Config(), {"task": {"support": {"name": "mine", "masks": ["110", "011"], "held_out": ["111"]}}})
    path = tmp_path / "config.toml"
    path.write_text(write_toml(config))
    assert read_config(path, Config()) == config
    assert config.task.num_modules == 3
    assert config_tables(config)["task"]["support"]["held_out"] == ["111"]


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
def test_no_value_makes_a_field_crash(value: Any) -> None:
    """Any value gives either a configuration or an InputError."""
    for field in ("task.support", "model.embed_dim", "optimizer.learning_rate", "model.kind", "model.causal", "seed"):
        try:
            override(Config(), nested(field, value))
        except InputError as refused:
            assert "\n" not in str(refused)


def test_weight_decay_follows_the_model() -> None:
    """The default is Table 3's: 0.1 for the transformer, 0 for the hypertransformer. A given value is kept."""
    assert Config().optimizer.weight_decay == 0.1
    assert Config(model=HypertransformerConfig()).optimizer.weight_decay == 0.0
    assert override(Config(), {"model": {"kind": "hypertransformer"}}).optimizer.weight_decay == 0.0
    given = {"model": {"kind": "hypertransformer"}, "optimizer": {"weight_decay": 0.3}}
    assert override(Config(), given).optimizer.weight_decay == 0.3


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_option_that_is_not_finite_is_refused(value: float) -> None:
    """NaN differs from itself, so such a run could never resume."""
    with pytest.raises(InputError, match=r"model\.options\.start = (nan|inf): must be finite"):
        CustomModelConfig("package.module:Class", (("start", value),))


def test_the_latent_follows_the_number_of_modules_unless_it_is_set() -> None:
    hyper = preset_config("smoke", "hypertransformer")
    assert hyper.model.latent_dim == 6  # pyright: ignore
    eight = override(hyper, {"task": {"support": "2-hot:8"}})
    assert eight.model.latent_dim == 8  # pyright: ignore
    assert override(eight, {"task": {"support": "connected"}}) == override(hyper, {"task": {"support": "connected"}})
    for changes in (
        {"task": {"support": "2-hot:8"}, "model": {"latent_dim": 6}},
        {"task": {"support": "2-hot:8"}, "model": {"latent_dim": 6, "kind": "hypertransformer"}},
    ):
        assert override(hyper, changes).model.latent_dim == 6  # pyright: ignore
    wide = override(hyper, {"model": {"latent_dim": 12}})
    assert override(wide, {"task": {"support": "2-hot:8"}}).model.latent_dim == 12  # pyright: ignore
    stored = override(eight, {"model": {"latent_dim": 6}})
    assert stored_config(tomllib.loads(write_toml(stored))) == stored, "a stored run keeps what it was made with"
    assert (
        override(Config(), {"model": {"kind": "hypertransformer"}, "task": {"support": "2-hot:8"}}).model.latent_dim
        == 8
    )  # pyright: ignore


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
@example("model.kind", "\r:")
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
