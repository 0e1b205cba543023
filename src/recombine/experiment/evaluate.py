"""The episodes that a seed's models are scored on, and the references' scores on them."""

from dataclasses import replace

from recombine.config import Config
from recombine.measure.predict import predict
from recombine.measure.r2 import Score, score
from recombine.measure.reference import REFERENCES, predict_reference
from recombine.model.build import Model
from recombine.task.episode import Episode
from recombine.task.names import EVAL_SPLITS, Split
from recombine.task.split import sample_split
from recombine.task.teacher import Teacher
from recombine.train.step import config_teacher


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


def score_model(config: Config, model: Model, episodes: Episode) -> Score:
    """By the configured path, always in float32."""
    return score(predict(model, episodes, replace(config.compute, precision="float32")), episodes)


def reference_scores(config: Config) -> dict[str, dict[Split, Score]]:
    """Every reference on the episodes that the models are scored on. They do not depend on the model."""
    batches = evaluation_episodes(config, config_teacher(config))
    return {
        name: {split: score(predict_reference(reference, t, e, split), e) for split, (t, e) in batches.items()}
        for name, reference in REFERENCES.items()
    }
