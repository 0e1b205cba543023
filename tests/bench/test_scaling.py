"""Fitted exponents, the sweeps that they are fitted to, and the figure."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from recombine.bench.contender_process import Contestant
from recombine.bench.message import Failed, Turn
from recombine.bench.race import RaceResult, Report
from recombine.bench.result import Scaling
from recombine.bench.scaling import SWEEPS, fitted_exponent, measure_scaling, num_points
from recombine.bench.setting import OurSetting
from recombine.config.model import TrunkConfig
from recombine.config.preset import preset_config
from recombine.figure.bench import draw_scaling
from recombine.figure.save import save_figure
from recombine.record.codec import decode, encode
from recombine.terminal.bench_tables import print_scaling


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
