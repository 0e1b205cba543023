"""Scores the references on the same episodes as the models."""

from collections.abc import Sequence
from typing import Any

from recombine.config.schema import Config
from recombine.measure.novel import novel_scores, novel_tasks
from recombine.measure.r2 import score
from recombine.measure.reference.baselines import make_references, predict_reference
from recombine.measure.reference.trained_tasks import TrainedCovariance
from recombine.record.reference import REFERENCE_NAMES, References, ReferenceScores
from recombine.task.evaluation import active_modules_episodes, evaluation_episodes, evaluation_splits
from recombine.task.teacher import config_teacher


def reference_scores(config: Config, names: Sequence[str] = REFERENCE_NAMES) -> References:
    """The scores of the references. They depend on the task and the seed, but not on the model."""
    teacher = config_teacher(config)
    task = config.task
    references = make_references(config.seed, teacher, task.support, task.episode_length, names)
    found: dict[str, Any] = {name: {"active_modules": {}} for name in references}
    for split in evaluation_splits(config):
        teachers, episodes = evaluation_episodes(config, teacher, split)
        for name, reference in references.items():
            found[name][split] = score(predict_reference(reference, teachers, episodes, split), episodes)
    for k, episodes in active_modules_episodes(config, teacher):
        for name, reference in references.items():
            predicted = predict_reference(reference, teacher, episodes, "in_dist")
            found[name]["active_modules"][str(k)] = score(predicted, episodes)
    novel = novel_tasks(config, teacher) if task.support.held_out else None
    for name, reference in references.items():
        if novel is not None:
            found[name]["novel"] = novel_scores(novel, predict_reference(reference, teacher, novel.episodes, "ood"))
        if isinstance(reference, TrainedCovariance):
            found[name]["noise"] = reference.noise
    return {name: ReferenceScores(**scores) for name, scores in found.items()}
