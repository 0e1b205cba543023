"""Where a run goes on: at its newest good checkpoint, if nothing else has changed since."""

import json
from collections.abc import Callable
from typing import Any

from recombine.config import Config
from recombine.config_file import config_as_dict, differences, parse_toml
from recombine.errors import InputError
from recombine.experiment.rundir import CONFIG, METRICS, RunDirectory
from recombine.experiment.trained import LOSSES
from recombine.train.checkpoint import Checkpoint, DamagedCheckpoint, list_checkpoints, read_checkpoint, set_aside


def newest_checkpoint(directory: RunDirectory, say: Callable[[str], None]) -> Checkpoint | None:
    """None in a new directory. Damaged ones are set aside; if no other is left, there is nothing to go on from."""
    paths = list_checkpoints(directory.checkpoints)
    for path in paths:
        try:
            checkpoint = read_checkpoint(path)
            for name in (CONFIG, METRICS):
                if name not in checkpoint.texts:
                    raise DamagedCheckpoint(f"{path.name} has no {name}")
            if LOSSES not in checkpoint.arrays:
                raise DamagedCheckpoint(f"{path.name} has no {LOSSES}")
        except DamagedCheckpoint as damage:
            say(f"damaged checkpoint, set aside as {set_aside(path).name}: {damage}")
        else:
            return checkpoint
    if paths or directory.read_metrics():
        expected = "the run has no good checkpoint left to go on from; to start again, name a new directory"
        raise InputError("out", str(directory.path), expected)
    return None


def what_changed(
    directory: RunDirectory, newest: Checkpoint | None, config: Config, identity: dict[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """The settings that are not those the run was made with, and what its bits depend on: before and now."""
    stored = parse_toml(newest.texts[CONFIG], CONFIG) if newest else directory.read_config()
    changed = differences(stored, config_as_dict(config)) if stored else {}
    if newest and not _is_finished(newest, config):  # what is only reported depends on no machine
        # How many are trained together may change, as sweeps grow: every start records how many there were at most.
        before, now = ({name: one[name] for name in one if name != "together"} for one in (newest.identity, identity))
        changed |= differences({"machine": before}, {"machine": now})
    return changed


def last_step(metrics: str) -> int | None:
    """Of the last row, if there is one."""
    return json.loads(metrics.splitlines()[-1])["step"] if metrics else None


def _is_finished(newest: Checkpoint, config: Config) -> bool:
    return newest.step == config.optimizer.num_steps and last_step(newest.texts[METRICS]) == newest.step
