"""Grids: the configurations of a sweep."""

from functools import cache
from pathlib import Path

import pytest

from recombine.config.preset import preset_config
from recombine.errors import InputError
from recombine.jobs.grid import SweepRun, parse_grid, read_grid, sweep_runs

TWO = {"grid": {"model.embed_dim": [16, 32], "optimizer.learning_rate": [0.001, 0.003]}}
EACH = {"grid": {"model.embed_dim": [8, 16]}, "each": {"model.causal": [True], "model.num_heads": [1, 2]}}


@cache
def paper_runs(kind: str) -> list[SweepRun]:
    return sweep_runs(read_grid(f"paper-{kind}"), "paper", [0])


def test_the_papers_grids_have_the_papers_sizes() -> None:
    """360 and 2,160 configurations, and 7,560 runs with 3 seeds."""
    sizes = [len(paper_runs(kind)) for kind in ("transformer", "hypertransformer")]
    assert sizes == [360, 2160]
    assert 3 * sum(sizes) == 7560


def test_the_papers_selected_values_are_in_its_grid() -> None:
    for kind in ("transformer", "hypertransformer"):
        assert [run.config for run in paper_runs(kind)].count(preset_config("paper", kind)) == 1


def test_every_combination_once_and_all_of_one_seed_before_the_next() -> None:
    runs = sweep_runs(parse_grid(TWO), "smoke", [4, 5])
    found = [(run.config.seed, run.config.model.embed_dim, run.config.optimizer.learning_rate) for run in runs]
    assert found == [(s, e, lr) for s in (4, 5) for e in (16, 32) for lr in (0.001, 0.003)]
    assert runs[1].name == "transformer-embed_dim=16,learning_rate=0.003-seed4"
    assert runs[1].point == {"model.embed_dim": 16, "optimizer.learning_rate": 0.003}


def test_tables_inside_the_grid_are_the_same() -> None:
    nested = {"grid": {"model": {"embed_dim": [16, 32]}, "optimizer": {"learning_rate": [0.001, 0.003]}}}
    assert sweep_runs(parse_grid(nested), "smoke", [0]) == sweep_runs(parse_grid(TWO), "smoke", [0])


def test_exclusions() -> None:
    out = [{"model.embed_dim": 16, "optimizer.learning_rate": 0.003}]
    runs = sweep_runs(parse_grid(TWO | {"exclude": out}), "smoke", [0])
    assert [tuple(run.point.values()) for run in runs] == [(16, 0.001), (32, 0.001), (32, 0.003)]


def test_one_change_at_a_time() -> None:
    tables = {
        "grid": {"model.kind": ["transformer", "hypertransformer"]},
        "each": {"model.causal": [True], "model.unit_norm": [True], "optimizer.warmup_steps": [0, 5]},
        "exclude": [{"model.kind": "transformer", "model.unit_norm": True}],
        "optimizer": {"num_steps": 9},
    }
    runs = sweep_runs(parse_grid(tables), "smoke", [0])
    assert [run.name for run in runs] == [
        "transformer-base-seed0",
        "transformer-causal=True-seed0",
        "transformer-warmup_steps=5-seed0",
        "hypertransformer-base-seed0",
        "hypertransformer-causal=True-seed0",
        "hypertransformer-unit_norm=True-seed0",
        "hypertransformer-warmup_steps=5-seed0",
    ], "warmup_steps = 0 is the base"
    assert {run.config.optimizer.num_steps for run in runs} == {9}


def test_a_sample_is_the_same_every_time() -> None:
    grid = read_grid("paper-hypertransformer")
    one, other = (sweep_runs(grid, "paper", [0, 1], sample=10) for _ in range(2))
    assert one == other
    assert len(one) == 20
    assert len({run.config.optimizer.learning_rate for run in one}) > 1
    configurations = [run.name.removesuffix("-seed0") for run in paper_runs("hypertransformer")]
    everything = [f"{name}-seed{seed}" for seed in (0, 1) for name in configurations]
    assert [run.name for run in one] == [name for name in everything if name in {run.name for run in one}]


def test_supports_go_by_their_names() -> None:
    few = {"name": "few", "masks": ["110000", "001100", "000011"]}
    more = few | {"name": "more", "masks": [*few["masks"], "100001"]}
    runs = sweep_runs(parse_grid({"grid": {"task.support": [few, "connected+", more]}}), "smoke", [0])
    assert [run.name for run in runs] == [f"transformer-support={name}-seed0" for name in ("few", "connected+", "more")]
    left = parse_grid({"grid": {"task.support": [few, "connected+", more]}, "exclude": [{"task.support": "few"}]})
    assert [run.config.task.support.name for run in sweep_runs(left, "smoke", [0])] == ["connected+", "more"]
    with pytest.raises(InputError, match="which has few, more"):
        parse_grid({"grid": {"task.support": [few, more]}, "exclude": [{"task.support": "fewer"}]})
    with pytest.raises(InputError, match=r"transformer-support=few-seed0.*name supports differently"):
        sweep_runs(parse_grid({"grid": {"task.support": [few, more | {"name": "few"}]}}), "smoke", [0])


def test_names_fit_a_directory() -> None:
    for run in sweep_runs(read_grid("paper-hypertransformer"), "paper", [0], sample=50):
        assert len(run.name.encode()) <= 255
    grid = parse_grid({"grid": {"task.support": ["connected", "110000,011000,001100,000110,000011"]}})
    assert all(
        "/" not in run.name and "," not in run.name.removesuffix("-seed0") for run in sweep_runs(grid, "smoke", [0])
    )


@pytest.mark.parametrize(
    ("tables", "field", "expected"),
    [
        ({}, "grid", "a table [grid]"),
        ({"grid": 3}, "grid", "a table of fields"),
        ({"gird": {"model.embed_dim": [16]}, "each": {"model.causal": [True]}}, "gird", "did you mean 'grid'?"),
        ({"grid": {"model.latent_dim": [4]}}, "model.latent_dim", "model.kind = transformer"),
        ({"grid": {"model.embed_dim": 16}}, "grid.model.embed_dim", "a list of values"),
        ({"grid": {"model.embed_dim": []}}, "grid.model.embed_dim", "a list of values"),
        ({"grid": {"model.embed_dim": [16, 16]}}, "grid.model.embed_dim", "names a value twice"),
        ({"grid": {"seed": [1, 2]}}, "grid.seed", "--seeds"),
        ({"grid": {"model.embed_dims": [16]}}, "model.embed_dims", "did you mean 'embed_dim'"),
        ({"grid": {"model.embed_dim": [16, "a"]}}, "model.embed_dim", "an integer from 1"),
        ({"grid": {"model.embed_dim": [16], "model.num_heads": [4, 5]}}, "model.num_heads", "= 5; [[exclude]]"),
        ({"grid": {"model.kind": ["transfomer"]}}, "model.kind", "did you mean 'transformer'"),
        ({"grid": {"model.embed_dim": [16]}, "exclude": 3}, "exclude", "tables [[exclude]]"),
        ({"grid": {"model.embed_dim": [16]}, "exclude": [{}]}, "exclude", "everything"),
        (TWO | {"exclude": [{"model.num_heads": 1}]}, "exclude.model.num_heads", "not a field"),
        (TWO | {"exclude": [{"model.embed_dims": 8}]}, "exclude.model.embed_dims", "did you mean 'model.embed_dim'?"),
        ({"grid": {"model.embed_dim": [16]}, "exclude": [{"model.embed_dim": 16}]}, "exclude", "every configuration"),
        ({"grid": {"model.causal": [True]}, "each": {"model.causal": [False]}}, "each.model.causal", "in [grid]"),
        ({"grid": {"measure.episodes": [*range(2, 400)], "optimizer.num_steps": [*range(1, 400)]}}, "grid", "more"),
        ({"grid": {"model": ["a"], "model.embed_dim": [16]}}, "grid.model", "a table, and model.embed_dim"),
        ({"grid": {"model.kind": [["a"]]}}, "grid.model.kind", "a model's name"),
        ({"grid": {"model.embed_dim": [16]}, "seed": 5}, "seed", "--seeds"),
        (TWO | {"exclude": [{"model.embed_dim": 7}]}, "exclude.model.embed_dim", "not a value in the grid"),
        (EACH | {"exclude": [{"model.causal": False}]}, "exclude.model.causal", "not a value in the grid"),
        (EACH | {"exclude": [{"model.causal": True, "model.num_heads": 1}]}, "exclude", "one field at a time"),
        ({"grid": {"model.embed_dim": [16], "model": {"embed_dim": [32]}}}, "grid.model.embed_dim", "named twice"),
        ({"grid": {"model.embed_dim": [16]}, "model": {"embed_dim": 8}}, "model.embed_dim", "also in the grid"),
        ({"grid": {"model.embed_dim": [16]}, "optimiser": {"num_steps": 3}}, "optimiser", "did you mean 'optimizer'"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_grid_is_one_clear_line(tables: dict, field: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        sweep_runs(parse_grid(tables), "smoke", [0])
    assert caught.value.field == field
    assert expected in str(caught.value)


def test_a_grid_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'paper-transformer'"):
        read_grid("paper-transfomer")
    (tmp_path / "grid.toml").write_text("[grid\n")
    with pytest.raises(InputError, match="not valid TOML"):
        read_grid(str(tmp_path / "grid.toml"))
