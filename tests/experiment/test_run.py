"""A run without anything held out, and what evaluation draws."""

import numpy as np

from recombine.config_file import override
from recombine.experiment.run import evaluation_episodes, run
from recombine.preset import preset_config
from recombine.train.step import config_teacher

CHANGES = {"optimizer": {"num_steps": 4}, "measure": {"episodes": 16}}


def test_no_ood_without_held_out_masks() -> None:
    config = override(preset_config("smoke", "transformer"), {**CHANGES, "task": {"support": "2-hot"}})
    *before, last = run(config)
    assert [progress.step for progress in before] == [1, 2, 3]
    assert all(progress.scores is None for progress in before)
    assert last.scores is not None
    assert set(last.scores) == {"in_dist", "control"}


def test_every_model_of_a_seed_is_scored_on_the_same_episodes() -> None:
    batches = []
    for kind in ("transformer", "hypertransformer"):
        config = override(preset_config("smoke", kind), CHANGES)
        batches.append(evaluation_episodes(config, config_teacher(config)))
    for split in batches[0]:
        np.testing.assert_array_equal(batches[0][split][1].query_y, batches[1][split][1].query_y)
