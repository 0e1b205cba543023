"""The references' scores: computed once for a seed, a support and an episode length."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recombine.config import Config
from recombine.config_file import config_as_dict
from recombine.experiment.evaluate import evaluation_episodes, evaluation_splits, finite
from recombine.experiment.scorecard import active_modules_episodes
from recombine.files import NotAFile, make_directories, read_file, replace_file, where_allowed
from recombine.measure.r2 import score
from recombine.measure.reference import NAMES, make_references, predict_reference
from recombine.train.step import config_teacher

LARGEST = 1 << 20
FORMAT = 1  # of the file, and of what the references are: another number when one of them changes
REFERENCES_DIRECTORY = "references"  # beside the runs


def reference_scores(config: Config, names: Sequence[str] = NAMES) -> dict[str, dict[str, Any]]:
    """References on the episodes that the models are scored on. They do not depend on the model."""
    teacher = config_teacher(config)
    known = make_references(config.seed, teacher, config.task.support)
    references = {name: known[name] for name in names}
    found: dict[str, dict[str, Any]] = {name: {} for name in references}
    for split in evaluation_splits(config):
        teachers, episodes = evaluation_episodes(config, teacher, split)
        for name, reference in references.items():
            found[name][split] = finite(
                score(predict_reference(reference, teachers, episodes, split), episodes)._asdict()
            )
    for k, episodes in active_modules_episodes(config, teacher):
        for name, reference in references.items():
            predicted = predict_reference(reference, teacher, episodes, "in_dist")
            found[name].setdefault("active_modules", {})[str(k)] = finite(score(predicted, episodes)._asdict())
    return found


def reference_path(directory: Path, config: Config) -> Path:
    """Where a directory of runs keeps them: the name says what they depend on, and a hash says it exactly."""
    depends = _depends(config)
    digest = hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()[:8]
    task = config.task
    support = "".join(c if c.isalnum() or c in "+-" else "_" for c in task.support.name)[:40]
    return directory / f"{support}-N{task.episode_length}-seed{config.seed}-{digest}.json"


def stored_references(directory: Path, config: Config) -> dict[str, dict[str, Any]] | None:
    """The scores, if they are there."""
    try:
        stored = json.loads(read_file(reference_path(directory, config), LARGEST))
    except (NotAFile, ValueError):
        return None
    return stored.get("scores") if isinstance(stored, dict) and stored.get("depends") == _depends(config) else None


def missing_references(directory: Path, config: Config) -> list[str]:
    """All of them, or those that there were not yet when the others were stored."""
    stored = stored_references(directory, config) or {}
    return [name for name in NAMES if name not in stored]


def store_references(directory: Path, config: Config) -> dict[str, dict[str, Any]]:
    """The scores, computed if they are not there yet."""
    scores = stored_references(directory, config) or {}
    if missing := missing_references(directory, config):
        found = scores | reference_scores(config, missing)
        scores = {name: found[name] for name in NAMES}
        text = json.dumps({"depends": _depends(config), "scores": scores}, indent=1, allow_nan=False)
        with where_allowed():
            make_directories(directory)
            replace_file(reference_path(directory, config), f"{text}\n".encode())
    return scores


def _depends(config: Config) -> dict[str, Any]:
    data = config_as_dict(config)
    kept = {name: data.get(name) for name in ("task", "seed", "teacher_seed")}
    return kept | {"episodes": config.measure.episodes, "format": FORMAT}
