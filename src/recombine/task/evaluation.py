"""The episodes that a run is measured on.

A seed's episodes are the same for every model and every snapshot.
"""

from collections.abc import Iterator
from math import comb

from recombine.config.schema import Config
from recombine.stream import Stream
from recombine.support.masks import MOST_MASKS, k_hot_masks
from recombine.support.split import EVAL_SPLITS, Split
from recombine.task.episode import Episode
from recombine.task.sample import sample_masks, sample_split
from recombine.task.teacher import Teacher


def evaluation_splits(config: Config) -> list[Split]:
    """The splits that a run is scored on: a support that holds nothing out has no `ood`."""
    return [split for split in EVAL_SPLITS if split != "ood" or config.task.support.held_out]


def evaluation_episodes(config: Config, teacher: Teacher, split: Split) -> tuple[Teacher, Episode]:
    """A split's episodes, and the teacher that labels them (for the controls, one per episode)."""
    task, count = config.task, config.measure.episodes
    return sample_split(config.seed, split, teacher, task.support, task.episode_length, count)


def probe_episodes(config: Config, teacher: Teacher) -> Episode:
    """The episodes that the probe is fitted on: in distribution, from a stream of their own."""
    task, count = config.task, config.measure.episodes
    return sample_masks(config.seed, Stream.probe, teacher, task.support.masks, task.episode_length, count)


def selection_episodes(config: Config, teacher: Teacher, split: Split) -> Episode:
    """The episodes that a sweep selects by, and nothing is reported on. Each split has a step of the stream."""
    task, count = config.task, config.measure.episodes
    step, masks = EVAL_SPLITS.index(split), task.support.masks_of(split)
    return sample_masks(config.seed, Stream.select, teacher, masks, task.episode_length, count, step=step)


def active_modules_episodes(config: Config, teacher: Teacher) -> Iterator[tuple[int, Episode]]:
    """Tasks of k active modules, for each k: every mask with k active modules is equally likely."""
    task = config.task
    for k in range(1, task.num_modules + 1):
        if comb(task.num_modules, k) > MOST_MASKS:
            continue
        masks, count = k_hot_masks(task.num_modules, k), config.measure.episodes
        yield k, sample_masks(config.seed, Stream.active_modules, teacher, masks, task.episode_length, count, step=k)
