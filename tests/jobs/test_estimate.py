"""Estimated times: compiling, references and scorecards count, and nothing is compiled twice."""

from pathlib import Path

import pytest

from recombine.config.schema import Config
from recombine.jobs import estimate as module
from recombine.jobs.estimate import Cost, JobCost, Speed, estimate, job_costs
from recombine.jobs.grid import read_grid, sweep_runs
from recombine.jobs.paper_runs import paper_runs
from recombine.jobs.plan import jobs_to_do
from recombine.train.flops import step_flops


def wanted(preset: str, seeds: int = 1) -> dict[str, Config]:
    return {entry.name: entry.config for entry in paper_runs(preset, {}, range(seeds))}


def test_every_program_is_compiled_once(tmp_path: Path) -> None:
    costs = job_costs(jobs_to_do(wanted("quick", seeds=2), tmp_path, ["scorecard"]))
    assert len(costs) == 2 * (11 + 3), "the runs, and the references of three supports"
    models = ("transformer", "hypertransformer", "explicit-3", "informed", "Bottleneck")
    for model in models:
        first, *others = [cost for name, cost in costs.items() if name.startswith(f"{model}-")]
        assert first.start.compiling > 0 < first.after.compiling
        assert others
        assert all(cost.start.compiling == 0 == cost.after.compiling for cost in others)
        assert all(cost.after.computing == first.after.computing > 0 for cost in others)
    first, *others = [cost for name, cost in costs.items() if name.startswith("references")]
    assert first.start.compiling > 0 == others[-1].start.compiling
    assert {cost.start.computing for cost in others} == {first.start.computing}


def test_the_steps_of_the_paper(tmp_path: Path) -> None:
    """100,000 steps, and 41 measurements of 16,000 episodes: four splits, the probe's, and half as many novel ones."""
    runs = wanted("paper")
    costs = job_costs(jobs_to_do(runs, tmp_path, ["scorecard"]))
    for name, inference_steps in (("transformer-connected+-seed0", 0), ("explicit-3-disconnected-seed0", 3)):
        step = module.STEP + inference_steps * module.INFERENCE_STEP + module.PER_FLOP * step_flops(runs[name])
        expected = step * (100_000 + 41 * 16_000 * 5.5 * module.FORWARD / 128)
        assert costs[name].train == Cost(0.0, pytest.approx(expected))


def test_a_sweep_compiles_each_configuration_and_selects(tmp_path: Path) -> None:
    runs = sweep_runs(read_grid("paper-hypertransformer"), "paper", [0, 1])
    runs = [*runs[:3], *runs[len(runs) // 2 :][:3]]  # three configurations with each seed
    costs = list(job_costs(jobs_to_do({run.name: run.config for run in runs}, tmp_path, ["selection"])).values())
    trained = [cost for cost in costs if cost.train.computing]
    assert [cost.start.compiling > 0 for cost in trained] == [True] * 3 + [False] * 3
    assert {cost.after.compiling for cost in trained} == {0.0}, "without a scorecard"


def test_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that compiles half as fast, and computes three times as fast."""
    costs = {"a": JobCost(Cost(10.0, 3.0), Cost(0.0, 30.0), Cost(5.0, 6.0)), "b": JobCost(Cost(0.0, 3.0))}
    monkeypatch.setattr(module, "job_costs", lambda jobs, step_seconds: costs)
    monkeypatch.setattr(module, "measure_speed", lambda: Speed(2.0, 1 / 3, 1.5))
    jobs = jobs_to_do(wanted("smoke"), tmp_path, ["scorecard"])
    for workers, total in ((1, 44.0), (2, 43.0)):
        found = estimate(jobs, workers, print)
        assert found.each == {"a": pytest.approx(43.0), "b": pytest.approx(1.0)}
        assert (found.total, found.compiling, found.busy) == (pytest.approx(total), pytest.approx(30.0), 1.5)
    assert estimate([], 2, print).total == 0.0
