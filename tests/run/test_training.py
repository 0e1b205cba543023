"""Training a run, starting it from another one, and loading it again."""

import json
import shutil
import struct
import tomllib
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tomli_w

from recombine.cli.main import main
from recombine.config.preset import preset_config
from recombine.config.schema import Config
from recombine.config.toml import override, write_toml
from recombine.errors import InputError
from recombine.measure.snapshot import snapshot_episodes
from recombine.model.bottleneck import _closest_width
from recombine.model.weights import named_arrays
from recombine.record.codec import plain
from recombine.run.load import load_model, restore_state
from recombine.run.training import execute_run
from recombine.storage.checkpoint import checkpoint_path, list_checkpoints, read_checkpoint, save_checkpoint
from recombine.storage.source import CHECKPOINTS, CONFIG, WEIGHTS
from recombine.task.evaluation import evaluation_episodes
from recombine.task.sample import sample_split
from recombine.task.teacher import config_teacher
from recombine.train.step import init_state
from tests.reliability.small_run import compiled_programs, finish, result, small_config

CHANGES = {"optimizer": {"num_steps": 4}, "measure": {"episodes": 16}}


def test_no_ood_without_held_out_masks(tmp_path: Path) -> None:
    config = override(preset_config("smoke", "transformer"), {**CHANGES, "task": {"support": "2-hot"}})
    *_, last = execute_run(config, tmp_path / "run")
    assert last.step == 4
    assert set(plain(last.row)) == {"step", "loss", "in_dist", "control", "control_modules", "probe"}
    assert set(plain(last.row.probe)) == {"in_dist", "latent"}


def test_every_model_of_a_seed_is_scored_on_the_same_episodes() -> None:
    batches = []
    for kind in ("transformer", "hypertransformer"):
        config = override(preset_config("smoke", kind), CHANGES)
        batches.append(snapshot_episodes(config, config_teacher(config)))
    for a, b in zip(*map(jax.tree.leaves, batches), strict=True):
        np.testing.assert_array_equal(a, b)


def query_inputs(**changes) -> dict[str, np.ndarray]:
    config = override(preset_config("smoke", "transformer"), {**CHANGES, **changes})
    splits, probe, novel = snapshot_episodes(config, config_teacher(config))
    assert novel is not None
    every = {**splits, "probe": probe, "novel": novel.episodes}
    return {split: np.asarray(episodes.query_x) for split, episodes in every.items()}


def test_another_seed_is_scored_on_other_episodes() -> None:
    here, there = query_inputs(teacher_seed=0), query_inputs(seed=1, teacher_seed=0)
    for split in here:
        assert not np.isin(here[split], there[split]).any()


def test_both_controls_are_measured() -> None:
    config = override(preset_config("smoke", "transformer"), CHANGES)
    teacher = config_teacher(config)
    for split, kept in (("control", False), ("control_modules", True)):
        teachers, _ = evaluation_episodes(config, teacher, split)
        assert bool((teachers.a == teacher.a).all()) is kept
        assert len(np.unique(teachers.theta, axis=0)) == 16


def test_no_two_splits_share_an_input() -> None:
    inputs = list(query_inputs().values())
    assert len(np.unique(np.concatenate(inputs), axis=0)) == sum(map(len, inputs))


def test_nothing_that_is_scored_was_trained_on() -> None:
    config = override(preset_config("smoke", "transformer"), CHANGES)
    teacher = config_teacher(config)
    trained = [
        np.asarray(sample_split(config.seed, "train", teacher, config.task.support, 8, 16, step=step)[1].query_x)
        for step in range(4)
    ]
    for inputs in query_inputs().values():
        assert not np.isin(inputs, np.concatenate(trained)).any()


# Sizes that a configuration may have, but no machine: a model of them has 2⁴⁸ parameters and more.
HUGE = {
    "width": {"embed_dim": 65_536, "ffn_factor": 65_536},
    "blocks": {"num_layers": 65_536},
    "heads": {"embed_dim": 65_536, "num_heads": 65_536},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with its checkpoints, and the same run as it was exported."""
    place = tmp_path_factory.mktemp("place")
    finish(place / "run")
    assert main(["export", str(place / "run"), "--weights", "--out", str(place / "out")]) == 0
    (place / "out" / "run").rename(place / "exported")
    return place


def change_config(run: Path, changes: dict[str, Any]) -> None:
    """Change the run's model in every file that names it."""
    config = override(small_config(), changes)
    (run / CONFIG).write_text(write_toml(config))
    for path in list_checkpoints(run / CHECKPOINTS):
        checkpoint = read_checkpoint(path)
        shutil.rmtree(path)
        save_checkpoint(run / CHECKPOINTS, checkpoint._replace(texts={**checkpoint.texts, CONFIG: write_toml(config)}))


@pytest.mark.parametrize("name", ["run", "exported"])
def test_loading_compiles_nothing(place: Path, name: str) -> None:
    with compiled_programs() as compiled:
        load_model(place / name)
        assert not compiled
        jax.jit(lambda x: x - np.float32(place.stat().st_ino))(np.ones(2))
        assert compiled, "though programs are counted"


def test_the_tree_is_that_of_a_new_model_and_the_arrays_are_those_of_the_file(place: Path) -> None:
    for kind in ("transformer", "hypertransformer", "recombine.model.bottleneck:Bottleneck"):
        config = small_config(model={"kind": kind}) if kind != "transformer" else small_config()
        fresh = init_state(config)
        rng = np.random.default_rng(0)
        stored = {n: rng.normal(size=a.shape).astype(a.dtype) for n, a in named_arrays(fresh).items()}
        state = restore_state(config, stored, "a test")
        assert jax.tree.structure(state) == jax.tree.structure(fresh)
        found = named_arrays(state)
        assert found.keys() == stored.keys()
        for name, array in stored.items():
            assert (found[name].dtype, found[name].tobytes()) == (array.dtype, array.tobytes())
        assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(state) if hasattr(leaf, "shape"))


def test_a_checkpoint_and_its_export_are_the_same_model(place: Path) -> None:
    one, other = (load_model(place / name) for name in ("run", "exported"))
    assert (one.config, one.step) == (other.config, other.step)
    arrays, others = named_arrays(one.model), named_arrays(other.model)
    assert arrays.keys() == others.keys()
    assert all(np.array_equal(arrays[name], others[name]) for name in arrays)


@pytest.mark.parametrize("name", ["run", "exported"])
@pytest.mark.parametrize("sizes", HUGE.values(), ids=HUGE)
def test_nothing_is_allocated_for_sizes_that_the_file_does_not_have(
    place: Path, tmp_path: Path, name: str, sizes: dict[str, int]
) -> None:
    run = shutil.copytree(place / name, tmp_path / "run")
    (run / "manifest.json").unlink(missing_ok=True)  # or the change is refused, whatever it is
    change_config(run, {"model": sizes})
    with pytest.raises(InputError) as caught:
        load_model(run)
    assert caught.value.field == "weights"


@pytest.mark.parametrize(
    "options", [{"embed_dim": 65_536}, {"latent_dim": 65_536, "hidden_dim": 65_536}, {"num_layers": 65_536},
                {"unknown": 1}, {"num_heads": "two"}],
    ids=str,
)  # fmt: skip
def test_a_class_of_ours_with_other_options(place: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    """The shipped class is built without a command naming it, from options in an untrusted file."""
    run = shutil.copytree(place / "exported", tmp_path / "run")
    (run / "manifest.json").unlink()
    tables = tomllib.loads((run / CONFIG).read_text())
    tables["model"] = {"kind": "recombine.model.bottleneck:Bottleneck", "options": options}
    (run / CONFIG).write_text(tomli_w.dumps(tables))
    with pytest.raises(InputError):
        load_model(run)


def test_the_closest_width() -> None:
    """Compared with a search over all widths that counts the weights of the layers."""
    for inputs in (2, 5, 24, 40):
        for budget in range(3, 2_000, 7):
            counts = {w: (inputs + 1) * w + (w + 1) * w + (w + 1) for w in range(1, budget)}
            assert _closest_width(inputs, budget) == min(counts, key=lambda w: abs(counts[w] - budget))


@pytest.mark.parametrize("kind", ["BF16", "F8_E4M3", "I64", "F64", "U8", "BOOL", "X"])
def test_parameters_of_another_type(place: Path, tmp_path: Path, kind: str) -> None:
    run = shutil.copytree(place / "exported", tmp_path / "run")
    header = json.dumps({"readout.bias": {"dtype": kind, "shape": [0], "data_offsets": [0, 0]}}).encode()
    (run / WEIGHTS).write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(InputError):
        load_model(run)


HYPER = {
    "task": {"input_dim": 2, "hidden_dim": 2, "episode_length": 3},
    "model": {"embed_dim": 4, "num_heads": 1, "num_layers": 1, "ffn_factor": 1, "hidden_dim": 3},
    "optimizer": {"num_steps": 6, "batch_size": 4},
    "measure": {"episodes": 4, "snapshots": 2},
}


def hyper(**changes) -> Config:
    return override(override(preset_config("smoke", "hypertransformer"), HYPER), changes)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run of seed 0, and its directory."""
    path = tmp_path_factory.mktemp("trained") / "connected+-seed0"
    finish(path, hyper())
    return path


def test_a_dreaming_run_starts_from_another_and_resumes_without_it(trained: Path, tmp_path: Path) -> None:
    other = tmp_path / trained.name
    shutil.copytree(trained, other)
    config = hyper(train={"start_from": f"{tmp_path}/{{support}}-seed{{seed}}", "dream": 0.5})
    finish(tmp_path / "whole", config)
    finish(tmp_path / "cut", config, stop_at=0)
    first = named_arrays(load_model(tmp_path / "cut").model)
    expected = named_arrays(load_model(trained).model)
    assert all(np.array_equal(first[name], expected[name]) for name in expected)
    shutil.rmtree(other)  # the run's own checkpoints have all that it needs
    finish(tmp_path / "cut", config, stop_at=2)
    finish(tmp_path / "cut", config)
    assert result(tmp_path / "cut") == result(tmp_path / "whole")
    last = read_checkpoint(checkpoint_path(tmp_path / "cut" / "checkpoints", 6))
    assert len(last.identity.start) == 64
    assert read_checkpoint(checkpoint_path(trained / "checkpoints", 6)).identity.start == ""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": {"start_from": "{there}/nothing"}}, "no such directory"),
        ({"model": {"hidden_dim": 4}}, "same sizes"),
        ({"model": {"kind": "transformer"}}, "a run of transformer"),
        ({"train": {"dream": 0.5}, "seed": 1}, "same teacher"),
        ({"train": {"start_from": "construction"}}, "given_latent"),
    ],
)
def test_a_start_that_does_not_fit(trained: Path, tmp_path: Path, changes: dict, message: str) -> None:
    train = {"start_from": str(trained)} | changes.pop("train", {})
    train["start_from"] = train["start_from"].replace("{there}", str(tmp_path))
    with pytest.raises(InputError, match=r"^train\.start_from = .*" + message) as caught:
        finish(tmp_path / "run", hyper(**changes, train=train))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("kind", "train"),
    [
        ("transformer", {"start_from": "a run", "dream": 0.5}),
        ("hypertransformer", {"dream": 0.5}),
        ("hypertransformer", {"start_from": "a run", "dream": 1.5}),
        ("hypertransformer", {"start_from": ""}),
    ],
)
def test_training_that_cannot_work(kind: str, train: dict) -> None:
    with pytest.raises(InputError, match=r"train\.(dream|start_from)"):
        override(preset_config("smoke", kind), {"train": train})


def test_training_from_the_construction(tmp_path: Path) -> None:
    """It is an exact start on the task of Appendix A, and is refused on the paper's, whose weights are normalised."""
    changes = {
        "task": {"input_dim": 6, "unit_norm": False},
        "model": {"options": {"given_latent": True, "num_heads": 6, "embed_dim": 24, "num_layers": 1}},
        "optimizer": {"num_steps": 2},
        "train": {"start_from": "construction"},
    }
    config = override(preset_config("smoke", "linear-attention"), {**changes, "measure": {"episodes": 8}})
    finish(tmp_path / "run", config, stop_at=0)
    (row,) = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    assert row["ood"]["r2"] > 0.9999
    finish(tmp_path / "run", config)
    with pytest.raises(InputError, match=r"task\.unit_norm"):
        finish(tmp_path / "other", override(config, {"task": {"unit_norm": True}}))
