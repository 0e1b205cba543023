"""One run: train a model and measure it; and the references on the same episodes."""

from collections.abc import Iterator
from typing import NamedTuple

from recombine.config import Config
from recombine.measure.predict import predict
from recombine.measure.r2 import Score, score
from recombine.measure.reference import REFERENCES, predict_reference
from recombine.task.episode import Episode
from recombine.task.names import EVAL_SPLITS, Split
from recombine.task.split import sample_split
from recombine.task.teacher import Teacher
from recombine.train.loop import train
from recombine.train.step import config_teacher

NUM_SNAPSHOTS = 20


class Progress(NamedTuple):
    """Where a run is: the steps done, their mean loss since the last time, and at the end its scores."""

    step: int
    loss: float
    scores: dict[Split, Score] | None


def run(config: Config) -> Iterator[Progress]:
    """Train from scratch, reporting progress; the last report has the scores on every evaluation split."""
    teacher = config_teacher(config)
    every = -(-config.optimizer.num_steps // NUM_SNAPSHOTS)
    for snapshot in train(config, teacher, every):
        last = snapshot.step == config.optimizer.num_steps
        scores: dict[Split, Score] | None = None
        if last:
            batches = evaluation_episodes(config, teacher)
            scores = {split: score(predict(snapshot.model, e), e) for split, (_, e) in batches.items()}
        yield Progress(snapshot.step, float(snapshot.losses.mean()), scores)


def reference_scores(config: Config) -> dict[str, dict[Split, Score]]:
    """Every reference on the episodes that the models are scored on. They do not depend on the model."""
    batches = evaluation_episodes(config, config_teacher(config))
    return {
        name: {split: score(predict_reference(reference, t, e, split), e) for split, (t, e) in batches.items()}
        for name, reference in REFERENCES.items()
    }


def evaluation_episodes(config: Config, teacher: Teacher) -> dict[Split, tuple[Teacher, Episode]]:
    """Each evaluation split's episodes, the same for every model and snapshot of a seed."""
    task = config.task
    splits: list[Split] = [split for split in EVAL_SPLITS if split != "ood" or task.support.held_out]
    return {
        split: sample_split(
            config.seed,
            split,
            teacher,
            task.support,
            task.episode_length,
            config.measure.episodes,
            control=task.control,
        )
        for split in splits
    }
