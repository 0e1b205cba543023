"""Fitted exponents, sweeps that take turns, and their figure."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recombine.bench.process import Entry
from recombine.bench.race import Result
from recombine.bench.scaling import SWEEPS, fitted_exponent, measure_scaling, num_points
from recombine.config.preset import preset_config
from recombine.figure.bench import draw_scaling
from recombine.figure.save import save_figure
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


def fake_race(entries: Sequence[Entry], steps: int, repeats: int, report: Any) -> dict[str, Result]:
    """Seconds in proportion to N² and to the layers, and to nothing else; six layers fail."""
    results = {}
    for entry in entries:
        config = entry.job["config"]
        if config["model"]["num_layers"] == 6:
            results[entry.name] = Result(entry.name, failed="too deep")
            continue
        seconds = 1e-5 * steps * config["task"]["episode_length"] ** 2 * config["model"]["num_layers"]
        rounds = [[{"steps": steps, "seconds": seconds * slower}] for slower in (1, 1, 3)]
        results[entry.name] = Result(entry.name, rounds=rounds)
    return results


@pytest.fixture
def scaling(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    monkeypatch.setattr("recombine.bench.scaling.race", fake_race)
    configs = [preset_config("paper", kind) for kind in ("transformer", "hypertransformer")]
    return [measure_scaling(config, 1, 4, 3, lambda _: None) for config in configs]


def test_the_sweeps(scaling: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    for model in scaling:
        assert [sweep["field"] for sweep in model["sweeps"]] == list(SWEEPS)
        length, size, layers = model["sweeps"]
        assert [length["exponent"], size["exponent"], layers["exponent"]] == pytest.approx([2.0, 0.0, 1.0])
        assert length["points"][0] == {"value": 8, "seconds": pytest.approx(1e-5 * 64 * 2)}
        assert layers["failures"] == {6: "too deep"}
    assert num_points() == 16
    print_scaling(scaling)
    printed = capsys.readouterr().out
    assert "2.00" in printed
    assert "model.num_layers = 6 failed: too deep" in printed


@pytest.mark.parametrize("name", ["scaling.svg", "scaling.png"])
def test_the_figure(name: str, scaling: list[dict[str, Any]], tmp_path: Path) -> None:
    save_figure(draw_scaling(scaling), tmp_path / name)
    data = (tmp_path / name).read_bytes()
    if name.endswith(".png"):
        assert data.startswith(b"\x89PNG")
        return
    text = data.decode()
    for said in ("transformer: exponent 2.00", "hypertransformer: exponent 1.00", "episode length N", "ms per step"):
        assert said in text
