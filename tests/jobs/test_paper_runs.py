"""The runs of the paper's panels, and how long jobs take."""

import re
from pathlib import Path

import pytest

from recombine import paper
from recombine.config.model import SEES_LABEL, CustomModelConfig
from recombine.config.preset import preset_config
from recombine.config.schema import Config
from recombine.config.toml import config_tables, override
from recombine.errors import InputError
from recombine.jobs import estimate as module
from recombine.jobs.estimate import Cost, JobCost, Speed, estimate, job_costs
from recombine.jobs.grid import read_grid, sweep_runs
from recombine.jobs.paper_runs import BOTTLENECK, LATER, paper_runs
from recombine.jobs.plan import jobs_to_do
from recombine.run.resume import _complete
from recombine.storage.reader import read_run
from recombine.storage.source import find_runs
from recombine.train.flops import step_flops

QUICK = Path(__file__).parents[2] / "evidence/quick/seed0.zip"


def test_every_panel_has_its_runs() -> None:
    entries = paper_runs("paper", {}, [0, 1, 2])
    by_panel: dict[str, list[tuple[str, str, int]]] = {}
    for entry in entries:
        config = entry.config
        by_panel.setdefault(entry.panels, []).append((config.model.label, config.task.support.name, config.seed))
    both = ("transformer", "hypertransformer")
    assert by_panel["A B C appendix"] == [(m, "connected+", seed) for seed in range(3) for m in both]
    assert sorted(by_panel["D"]) == sorted(
        (m, s, seed) for m in both for s in ("connected", "disconnected") for seed in range(3)
    )
    assert sorted(by_panel["explicit"]) == sorted(
        ("explicit-3", s, seed) for s in ("connected+", "connected", "disconnected") for seed in range(3)
    )
    assert by_panel["interventions"] == [("informed", "connected+", seed) for seed in range(3)]
    assert by_panel["bottleneck"] == [("Bottleneck", "connected+", seed) for seed in range(3)]
    assert list(by_panel)[:2] == ["A B C appendix", "D"], "what is worth most comes first"
    assert len({entry.name for entry in entries}) == len(entries)
    for entry in entries:
        assert entry.config.optimizer.num_steps == paper.NUM_STEPS
        assert entry.config.task.support.masks == tuple(
            tuple(map(int, mask)) for mask in paper.SUPPORTS[entry.config.task.support.name]
        )


def test_informed_is_the_transformer_and_one_field() -> None:
    configs = {entry.config.model.label: entry.config for entry in paper_runs("paper", {}, [0])}
    informed, plain = configs["informed"].model, configs["transformer"].model
    assert {f for f in vars(informed) if getattr(informed, f) != getattr(plain, f)} == {"given_latent"}
    bottleneck, hyper = configs["Bottleneck"], configs["hypertransformer"]
    options = dict(bottleneck.model.options)
    assert {name: value for name, value in vars(hyper.model).items() if name not in LATER} == options
    assert bottleneck.optimizer == hyper.optimizer


def test_a_model_of_ones_own_goes_with_the_papers_two() -> None:
    entries = paper_runs("smoke", {"custom": {"model": {"options": {"a": 1}}}}, [0], [CustomModelConfig("m:Mine")])
    mine = [entry for entry in entries if entry.config.model.label == "Mine"]
    assert [entry.config.task.support.name for entry in mine] == ["connected+", "connected", "disconnected"]
    assert mine[0].config.model == CustomModelConfig("m:Mine", (("a", 1),))
    entries = paper_runs("smoke", {}, [0], [CustomModelConfig(BOTTLENECK)])
    assert [entry.name for entry in entries].count("Bottleneck-connected+-seed0") == 1


def test_no_model_of_ones_own_takes_the_place_of_ours() -> None:
    for kind in ("my_model:Bottleneck", "my_model:transformer", "my_model:informed"):
        with pytest.raises(InputError, match="rename the class"):
            paper_runs("smoke", {}, [0], [CustomModelConfig(kind)])


def test_a_supports_name_is_no_path() -> None:
    entries = paper_runs("smoke", {"task": {"support": {"name": "../../x/y", "masks": ["110", "011"]}}}, [0])
    assert all("/" not in entry.name and not entry.name.startswith(".") for entry in entries)


def test_changes_and_a_support_of_ones_own() -> None:
    changes = {"task": {"support": ["110", "011"]}, "hypertransformer": {"model": {"latent_dim": 3}}}
    entries = paper_runs("smoke", changes, [0])
    assert {entry.config.task.num_modules for entry in entries} == {3}
    assert not any(entry.panels == "D" for entry in entries)
    configs = {entry.config.model.label: entry.config for entry in entries}
    assert configs["hypertransformer"].model.latent_dim == 3
    for bad, field in [
        ({"model": {"kind": "transformer"}}, "model.kind"),
        ({"transformer": {"task": {}}}, "transformer.task"),
        ({"transformer": 3}, "transformer"),
        ({"hypertransformer": {"model": {"kind": "x"}}}, "hypertransformer.model.kind"),
        ({"hypertransformer": {"model": {"latent_dim": 0}}}, "hypertransformer.model.latent_dim"),
        ({"custom": {"model": {"options": {}}}}, "custom"),
    ]:
        with pytest.raises(InputError, match=rf"^{field} = "):
            paper_runs("smoke", bad, [0])


def test_several_custom_models() -> None:
    entries = paper_runs("smoke", {}, [0], [CustomModelConfig("m:Mine"), CustomModelConfig("m:Other")])
    for label in ("Mine", "Other"):
        assert [entry.panels for entry in entries if entry.config.model.label == label] == ["A B C appendix", "D", "D"]
    with pytest.raises(InputError, match="Mine"):
        paper_runs("smoke", {}, [0], [CustomModelConfig("m:Mine"), CustomModelConfig("n:Mine")])


def test_the_runs_of_evidence_are_still_those_of_a_reproduction() -> None:
    """Fields that were added since change no configuration, so that old directories are resumed and read."""
    now = {entry.name: entry.config for entry in paper_runs("quick", {}, [0])}
    stored = {source.path.name: read_run(source, scorecard=False).config for source in find_runs(QUICK)}
    assert len(stored) >= 8
    for name, config in stored.items():
        assert now[name] == config, name
        assert _complete(_without_later(config_tables(config))) == config_tables(config), name


def _without_later(tables: dict) -> dict:
    return tables | {"model": {name: value for name, value in tables["model"].items() if name not in LATER}}


def test_a_reading_of_the_hypertransformer_is_one_of_the_bottleneck_too() -> None:
    """Except the one that shows the answer."""
    changes = {"hypertransformer": {"model": {"dropout": 0.1, "literal_input": True}}}
    entries = {entry.config.model.label: entry for entry in paper_runs("paper", changes, [0])}
    options = dict(entries["Bottleneck"].config.model.options)
    assert options["dropout"] == 0.1
    assert "literal_input" not in options
    assert "hypertransformer" not in entries
    assert re.fullmatch(r"[\w.+-]+", entries[SEES_LABEL].name)


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


def test_jobs_of_one_compiled_program_are_known(tmp_path: Path) -> None:
    """A worker forgets programs once it has those of many shapes: otherwise a sweep would fill the memory."""
    base = preset_config("smoke", "hypertransformer")
    changes = {
        "one": {},
        "seed": {"seed": 1},
        "support": {"task": {"support": "connected"}},
        "width": {"model": {"embed_dim": 32}},
        "rate": {"optimizer": {"learning_rate": 0.5}},
    }
    jobs = jobs_to_do({name: override(base, change) for name, change in changes.items()}, tmp_path, [])
    shape = {job.name: job.shape for job in jobs if job.kind == "train"}
    assert shape["one"] == shape["seed"] == shape["support"]
    assert len({shape["one"], shape["width"], shape["rate"]}) == 3


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
