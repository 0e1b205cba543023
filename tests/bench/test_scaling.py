"""The sizes and settings of a race, its stored result, and how time grows with the sizes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recombine.bench.contender import enter, enter_limits, limit_settings
from recombine.bench.contender_process import Contestant
from recombine.bench.message import Failed, Order, Turn
from recombine.bench.race import RaceResult, Report
from recombine.bench.result import ColdStart, Comparison, Scaling, Spread
from recombine.bench.scaling import SWEEPS, fitted_exponent, measure_scaling, num_points
from recombine.bench.setting import OurSetting, PeerSetting
from recombine.config.model import ModelKind, TrunkConfig
from recombine.config.preset import preset_config
from recombine.config.toml import override
from recombine.errors import InputError
from recombine.figure.bench import draw_scaling
from recombine.figure.save import save_figure
from recombine.record.codec import Record, convert, decode, encode, plain
from recombine.terminal.bench_tables import print_scaling

PAPER = preset_config("paper", "hypertransformer")
ENTRIES = [
    *(enter(name, PAPER, threads=2) for name in ("fast_sharded", "gpt2")),
    *enter_limits(limit_settings(PAPER), 2),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_setting_survives_json(entry: Contestant) -> None:
    order = Order(entry.module, entry.setting)
    received = decode(encode(order), Order)
    assert received == order
    assert isinstance(hash(received), int)  # Flax needs the hash of a setting


@pytest.mark.parametrize(
    ("kind", "section", "field", "value"),
    [
        ("transformer", "model", "causal", True),
        ("transformer", "model", "scale_scores", False),
        ("transformer", "model", "final_norm", False),
        ("hypertransformer", "model", "base_weights", True),
        ("hypertransformer", "model", "unit_norm", True),
        ("transformer", "optimizer", "warmup_steps", 5),
        ("transformer", "optimizer", "final_fraction", 0.1),
    ],
)
def test_options_that_no_peer_has(kind: ModelKind, section: str, field: str, value: Any) -> None:
    config = override(preset_config("smoke", kind), {section: {field: value}})
    with pytest.raises(InputError, match=rf"{section}\.{field}"):
        PeerSetting.from_config(config)


BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize(
    ("name", "key", "kind"),
    [
        ("results.json", "comparisons", Comparison),
        ("scaling.json", "scaling", Scaling),
        ("cold_start.json", "cold_starts", ColdStart),
    ],
)
def test_published_results(name: str, key: str, kind: type[Record]) -> None:
    """The same keys in the same order, and the same values."""
    entries = json.loads((BENCHMARKS / name).read_text(encoding="utf-8"))[key]
    assert len(entries) >= 2
    for entry in entries:
        assert json.dumps(plain(convert(entry, kind))) == json.dumps(entry)


def test_a_spread() -> None:
    assert Spread.of([3.0, 1.0, 2.5]) == Spread(median=2.5, least=1.0, most=3.0, all=(3.0, 1.0, 2.5))


@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.0, 2.0])
def test_the_exponent_of_a_power_law(exponent: float) -> None:
    assert fitted_exponent([(n, 0.03 * n**exponent) for n in (8, 16, 100)]) == pytest.approx(exponent)


def test_least_squares_in_logarithms() -> None:
    random = np.random.default_rng(0)
    values = np.array([8, 16, 32, 64])
    costs = values**1.3 * np.exp(random.normal(0, 0.2, 4))
    slope = np.polyfit(np.log(values), np.log(costs), 1)[0]
    assert fitted_exponent(list(zip(values.tolist(), costs.tolist(), strict=True))) == pytest.approx(slope)


def test_no_line_through_a_single_point() -> None:
    assert fitted_exponent([(8, 1.0)]) is None


def fake_race(entries: Sequence[Contestant], steps: int, repeats: int, report: Report) -> dict[str, RaceResult]:
    """The seconds are proportional to N² and to the layers, and depend on nothing else; six layers fail."""
    results = {}
    for entry in entries:
        assert isinstance(entry.setting, OurSetting)
        config = entry.setting.config
        assert isinstance(config.model, TrunkConfig)
        if config.model.num_layers == 6:
            results[entry.name] = RaceResult(entry.name, out=Failed("too deep"))
            continue
        seconds = 1e-5 * steps * config.task.episode_length**2 * config.model.num_layers
        rounds = tuple((Turn(steps, seconds * slower, loss=0.1, peak_bytes=None),) for slower in (1, 1, 3))
        results[entry.name] = RaceResult(entry.name, rounds=rounds)
    return results


@pytest.fixture
def scaling(monkeypatch: pytest.MonkeyPatch) -> list[Scaling]:
    monkeypatch.setattr("recombine.bench.scaling.race", fake_race)
    configs = [preset_config("paper", kind) for kind in ("transformer", "hypertransformer")]
    return [measure_scaling(config, 1, 4, 3, lambda _: None) for config in configs]


def test_the_sweeps(scaling: list[Scaling], capsys: pytest.CaptureFixture[str]) -> None:
    for model in scaling:
        assert [sweep.field for sweep in model.sweeps] == list(SWEEPS)
        length, size, layers = model.sweeps
        assert [length.exponent, size.exponent, layers.exponent] == pytest.approx([2.0, 0.0, 1.0])
        assert (length.points[0].value, length.points[0].seconds) == (8, pytest.approx(1e-5 * 64 * 2))
        assert layers.failures == {6: "too deep"}
        assert decode(encode(model), Scaling) == model
    assert num_points() == 16
    print_scaling(scaling)
    printed = capsys.readouterr().out
    assert "2.00" in printed
    assert "model.num_layers = 6 failed: too deep" in printed


@pytest.mark.parametrize("name", ["scaling.svg", "scaling.png"])
def test_the_figure(name: str, scaling: list[Scaling], tmp_path: Path) -> None:
    save_figure(draw_scaling(scaling), tmp_path / name)
    data = (tmp_path / name).read_bytes()
    if name.endswith(".png"):
        assert data.startswith(b"\x89PNG")
        return
    text = data.decode()
    for said in ("transformer: exponent 2.00", "hypertransformer: exponent 1.00", "episode length N", "ms per step"):
        assert said in text
