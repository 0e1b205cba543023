"""Finds the checkpoint from which a run resumes, and what has changed since it was made."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from recombine.code_digest import UNKNOWN
from recombine.config.schema import Config
from recombine.config.toml import Tables, config_tables, differences, parse_toml, stored_config
from recombine.errors import InputError
from recombine.record.codec import BadRecord, decode, plain
from recombine.record.run_state import Identity
from recombine.record.score import MetricsRow
from recombine.run.load import LOSSES
from recombine.storage.checkpoint import Checkpoint, DamagedCheckpoint, list_checkpoints, read_checkpoint, set_aside
from recombine.storage.source import CONFIG, METRICS
from recombine.storage.writer import RunDirectory


def newest_checkpoint(directory: RunDirectory, say: Callable[[str], None]) -> Checkpoint | None:
    """The newest good checkpoint; None in a new directory. Damaged checkpoints are renamed. If no good one is left,
    the run cannot resume, and an error is raised."""
    paths = list_checkpoints(directory.checkpoints)
    for path in paths:
        try:
            checkpoint = read_checkpoint(path)
            for name in (CONFIG, METRICS):
                if name not in checkpoint.texts:
                    raise DamagedCheckpoint(f"{path.name} has no {name}")
            losses = checkpoint.arrays.get(LOSSES)
            if losses is None or (losses.ndim, losses.dtype) != (1, np.float32):
                raise DamagedCheckpoint(f"{path.name} has no {LOSSES}")
        except DamagedCheckpoint as damage:
            say(f"damaged checkpoint, set aside as {set_aside(path).name}: {damage}")
        else:
            _check_metrics(checkpoint, directory)
            return checkpoint
    if paths or directory.has_metrics():
        expected = "the run has no good checkpoint left to resume from; to start again, name a new directory"
        raise InputError("out", str(directory.path), expected)
    return None


def _check_metrics(checkpoint: Checkpoint, directory: RunDirectory) -> None:
    """Refuse a checkpoint that is intact, but whose metrics are from another version."""
    try:
        last_metrics(checkpoint.texts[METRICS])
    except BadRecord as error:
        what = f"its {METRICS} has rows that this version does not know ({error}); name a new directory"
        raise InputError("out", str(directory.path), what) from error


def what_changed(
    directory: RunDirectory, newest: Checkpoint | None, config: Config, identity: Identity, say: Callable[[str], None]
) -> dict[str, tuple[Any, Any]]:
    """The settings, and the parts of its identity, in which this start differs from the run: old and new value."""
    stored = parse_toml(newest.texts[CONFIG], CONFIG) if newest else directory.read_config()
    changed = differences(_complete(stored), config_tables(config)) if stored else {}
    if newest and not _is_finished(newest, config):  # reporting a finished run depends on no machine
        # The number of runs in one vmapped program may change, as sweeps grow. Every start records it in env.json.
        before, now = (plain(msgspec.structs.replace(one, together=1)) for one in (newest.identity, identity))
        if newest.identity.sources == UNKNOWN:
            say("the run was made before runs recorded their code; the code may have changed since")
            now = {
                name: value for name, value in now.items() if name not in ("sources", "model_sources", "task_sources")
            }
        changed |= differences({"machine": before}, {"machine": now})
    return changed


def _complete(stored: Tables) -> Tables:
    """A stored configuration with the fields that were added since, at their defaults."""
    try:
        return config_tables(stored_config(stored))
    except InputError:  # of another version: the differences tell
        return stored


def last_metrics(metrics: str) -> MetricsRow | None:
    """The last row of the text of a metrics file, if there is one."""
    return decode(metrics.splitlines()[-1], MetricsRow) if metrics else None


def _is_finished(newest: Checkpoint, config: Config) -> bool:
    last = last_metrics(newest.texts[METRICS])
    return newest.step == config.optimizer.num_steps and last is not None and last.step == newest.step
