"""A run without held-out masks, and the episodes that evaluation draws."""

from pathlib import Path

import jax
import numpy as np

from recombine.config.preset import preset_config
from recombine.config.toml import override
from recombine.measure.snapshot import snapshot_episodes
from recombine.record.codec import plain
from recombine.run.training import execute_run
from recombine.task.evaluation import evaluation_episodes
from recombine.task.sample import sample_split
from recombine.task.teacher import config_teacher

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
