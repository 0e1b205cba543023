"""Estimated times of a sweep: a few shapes are timed, and the others interpolated."""

import pytest

from recombine.config.preset import preset_config
from recombine.config.schema import Config
from recombine.jobs import estimate
from recombine.jobs.estimate import Cost, seconds_per_run
from recombine.jobs.grid import read_grid, sweep_runs
from recombine.train.flops import step_flops


def test_a_large_grid_is_placed_between_a_few_that_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = []

    def time(config: Config) -> Cost:
        timed.append(config)
        return Cost(3.0, 1e-9 * step_flops(config))

    monkeypatch.setattr(estimate, "_time", time)
    configs = [run.config for run in sweep_runs(read_grid("paper-hypertransformer"), "paper", [0, 1])]
    seconds = seconds_per_run(configs, lambda text: None)
    assert len(timed) == estimate.MOST_TIMED
    for config, found in zip(configs[::97], seconds[::97], strict=True):
        read = 16_000 * 5 * 41  # four splits and what the probe is fitted on
        expected = 3.0 + 1e-9 * step_flops(config) * (100_000 + estimate.FORWARD * read / 128)
        assert found == pytest.approx(expected, rel=1e-6)


def test_what_does_not_change_a_steps_cost_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = []
    monkeypatch.setattr(estimate, "_time", lambda config: timed.append(config) or Cost(0.0, 1.0))
    grid = read_grid("paper-transformer")
    runs = sweep_runs(grid, "paper", [0, 1, 2])
    same = [run.config for run in runs if run.config.model == preset_config("paper", "transformer").model]
    assert len(same) == 3 * 6
    assert len(set(seconds_per_run(same, lambda text: None))) == 1
    assert len(timed) == 1
