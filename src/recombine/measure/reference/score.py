"""Scores the references on the same episodes as the models."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from recombine.config.schema import Config
from recombine.measure.novel import novel_scores, novel_tasks
from recombine.measure.r2 import score
from recombine.measure.reference.baselines import make_references, predict_reference
from recombine.measure.reference.trained_tasks import TrainedCovariance
from recombine.record.reference import REFERENCE_NAMES, References, ReferenceScores
from recombine.support.split import Split
from recombine.task.episode import Episode
from recombine.task.evaluation import active_modules_episodes, evaluation_episodes, evaluation_splits
from recombine.task.sample import teacher_axis
from recombine.task.teacher import Teacher, config_teacher

T = TypeVar("T")
MOST_AT_ONCE = 20_000  # episodes that are converted to float64 together


def reference_scores(config: Config, names: Sequence[str] = REFERENCE_NAMES) -> References:
    """The scores of the references. They depend on the task and the seed, but not on the model."""
    teacher = config_teacher(config)
    task = config.task
    references = make_references(config.seed, teacher, task.support, task.episode_length, names)
    splits: dict[Split, tuple[Teacher, Episode]] = {
        split: evaluation_episodes(config, teacher, split) for split in evaluation_splits(config)
    }
    modules = {str(k): episodes for k, episodes in active_modules_episodes(config, teacher)}
    novel = novel_tasks(config, teacher) if task.support.held_out else None
    # Episodes that one teacher labels are predicted at once, and so are the others: each is one program to compile.
    one_teacher: dict[str, Episode] = {}
    own_teachers: dict[str, tuple[Teacher, Episode]] = {}
    for split, (teachers, episodes) in splits.items():
        if teacher_axis(split) is None:
            one_teacher[split] = episodes
        else:
            own_teachers[split] = teachers, episodes
    one_teacher |= {f"{k} modules": episodes for k, episodes in modules.items()}
    if novel is not None:
        one_teacher["novel"] = novel.episodes
    joined, joined_own = _join(one_teacher), _join(own_teachers)
    found: dict[str, Any] = {}
    for name, reference in references.items():
        in_pieces = [predict_reference(reference, teacher, piece, "in_dist") for piece in _pieces(joined)]
        own = [predict_reference(reference, *piece, "control") for piece in _pieces(joined_own)]
        predicted = _part(in_pieces, one_teacher) | _part(own, own_teachers)
        found[name] = {split: score(predicted[split], episodes) for split, (_, episodes) in splits.items()}
        found[name]["active_modules"] = {k: score(predicted[f"{k} modules"], modules[k]) for k in modules}
        if novel is not None:
            found[name]["novel"] = novel_scores(novel, predicted["novel"])
        if isinstance(reference, TrainedCovariance):
            found[name]["noise"] = reference.noise
    return {name: ReferenceScores(**scores) for name, scores in found.items()}


def _join(parts: dict[str, T]) -> T:
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts.values())


def _pieces(joined: T) -> Iterator[T]:
    """Pieces of equal size, for one program, that limit the memory. The last one is filled up with the last episode."""
    total = len(jax.tree.leaves(joined)[0])
    size = -(-total // -(-total // MOST_AT_ONCE))
    for first in range(0, total, size):
        here = np.minimum(np.arange(first, first + size), total - 1)
        yield jax.tree.map(lambda array: array[here], joined)  # noqa: B023


def _part(pieces: Sequence[np.ndarray], parts: dict[str, T]) -> dict[str, np.ndarray]:
    """The predictions for the joined parts, each part's by its name."""
    counts = [len(jax.tree.leaves(part)[0]) for part in parts.values()]
    predicted = np.concatenate(pieces)[: sum(counts)]
    return dict(zip(parts, np.split(predicted, np.cumsum(counts)[:-1]), strict=True))
