"""What a sweep selects by: a finished run's scores on episodes that nothing is reported on.

The paper selects by the R² on held-out masks. The winner's score on the episodes it was selected by is too good, the
more so the more configurations there are; so they have a stream of their own.
"""

import json
from pathlib import Path
from typing import Any

from recombine.config import Config
from recombine.experiment.evaluate import evaluation_splits, finite, read_episodes
from recombine.experiment.rundir import METRICS
from recombine.experiment.sweep import SELECTION, SELECTION_FORMAT, read_selection
from recombine.experiment.trained import Trained
from recombine.files import read_file, replace_file
from recombine.measure.r2 import score
from recombine.model.build import Model
from recombine.stream import Stream
from recombine.task.names import Split
from recombine.task.split import sample_masks
from recombine.train.step import config_teacher

SPLITS: tuple[Split, ...] = ("in_dist", "ood")


def selection_scores(config: Config, model: Model) -> dict[str, dict[str, Any]]:
    """In distribution and out of it, each from a step of its own of the stream."""
    teacher, task = config_teacher(config), config.task
    found = {}
    for step, split in enumerate(SPLITS):
        if split not in evaluation_splits(config):
            continue
        masks, count, length = task.support.masks_of(split), config.measure.episodes, task.episode_length
        episodes = sample_masks(config.seed, Stream.select, teacher, masks, length, count, step=step)
        found[split] = finite(score(read_episodes(config, model, episodes).y, episodes)._asdict())
    return found


def store_selection(run: Path, trained: Trained) -> None:
    """Measured on the newest checkpoint, unless they are there."""
    stored = read_selection(run)
    if stored is None or stored.get("step") != trained.step:
        found = {
            "format": SELECTION_FORMAT,
            "step": trained.step,
            "select": selection_scores(trained.config, trained.model),
        }
        text = json.dumps(found | {"report": _reported(run, trained.step)}, indent=1, allow_nan=False)
        replace_file(run / SELECTION, f"{text}\n".encode())


def _reported(run: Path, step: int) -> dict[str, Any]:
    """The scores of the same splits in the last row of metrics, so that nothing else need be read."""
    *_, last = read_file(run / METRICS).splitlines()
    row = json.loads(last)
    if row["step"] != step:
        return {}
    return {split: {k: v for k, v in row[split].items() if k != "masks"} for split in SPLITS if split in row}
