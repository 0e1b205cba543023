"""The episodes on which a run is measured.

For a given seed they are the same for every model and every snapshot.
"""

from collections.abc import Iterator
from math import comb

from recombine.config.schema import Config
from recombine.config.task import TaskConfig
from recombine.stream import Stream
from recombine.support.masks import MOST_MASKS, k_hot_masks
from recombine.support.split import EVAL_SPLITS, Split
from recombine.task.custom_task import keeps_readout
from recombine.task.episode import Episode
from recombine.task.sample import sample_masks, sample_split
from recombine.task.teacher import Teacher


def evaluation_splits(config: Config) -> list[Split]:
    """The splits on which a run is scored. There is no `ood` if the support holds no mask out, and no
    `control_modules` if a task class has no readout to keep."""
    return task_splits(config.task)


def task_splits(task: TaskConfig) -> list[Split]:
    lacking = set() if task.support.held_out else {"ood"}
    lacking |= set() if keeps_readout(task) else {"control_modules"}
    return [split for split in EVAL_SPLITS if split not in lacking]


def evaluation_episodes(config: Config, teacher: Teacher, split: Split) -> tuple[Teacher, Episode]:
    """A split's episodes, and the teacher that labels them (for the controls, one per episode)."""
    task, count = config.task, config.measure.episodes
    return sample_split(config.seed, split, teacher, task.support, task.episode_length, count)


def probe_episodes(config: Config, teacher: Teacher) -> Episode:
    """The in-distribution episodes on which the probe is fitted, from their own stream."""
    task, count = config.task, config.measure.episodes
    return sample_masks(config.seed, Stream.probe, teacher, task.support.masks, task.episode_length, count)


def selection_episodes(config: Config, teacher: Teacher, split: Split) -> Episode:
    """The episodes by which a sweep selects; no reported score uses them. Each split has its own step of the stream."""
    task, count = config.task, config.measure.episodes
    step, masks = EVAL_SPLITS.index(split), task.support.masks_of(split)
    return sample_masks(config.seed, Stream.select, teacher, masks, task.episode_length, count, step=step)


def active_modules_episodes(config: Config, teacher: Teacher) -> Iterator[tuple[int, Episode]]:
    """Episodes with k active modules, for each k. All masks with k active modules are equally likely."""
    task = config.task
    for k in range(1, task.num_modules + 1):
        if comb(task.num_modules, k) > MOST_MASKS:
            continue
        masks, count = k_hot_masks(task.num_modules, k), config.measure.episodes
        yield k, sample_masks(config.seed, Stream.active_modules, teacher, masks, task.episode_length, count, step=k)
