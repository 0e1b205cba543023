"""Stores episodes in a file of plain arrays, for use without Recombine."""

from pathlib import Path

import numpy as np

from recombine.checks import MOST_NUMBERS
from recombine.config.schema import TaskConfig
from recombine.errors import InputError
from recombine.files import replacing
from recombine.support.split import CONTROL_SPLITS, Split
from recombine.task.sample import sample_split
from recombine.task.teacher import seed_teacher


def check_volume(task: TaskConfig, split: Split, num_episodes: int) -> None:
    """Refuse a file larger than a gigabyte before anything is drawn."""
    teachers = num_episodes if split in CONTROL_SPLITS else 1
    numbers = num_episodes * task.episode_length * max(task.input_dim, task.hidden_dim)
    numbers += teachers * task.num_modules * task.hidden_dim * task.input_dim
    if numbers > MOST_NUMBERS:
        raise InputError(
            "episodes",
            num_episodes,
            f"{numbers:,} numbers at these sizes; at most {MOST_NUMBERS:,} in one file",
        )


def sample_dataset(task: TaskConfig, split: Split, num_episodes: int, seed: int) -> dict[str, np.ndarray]:
    """A split's episodes, as the arrays that `recombine task sample` writes.

    mask_index points into masks (S, M), the masks of the split. For the control splits, θ and a have a leading axis.
    """
    check_volume(task, split, num_episodes)
    masks = task.support.masks_of(split)
    teacher = seed_teacher(seed, task.support, task.input_dim, task.hidden_dim)
    teacher, episodes = sample_split(seed, split, teacher, task.support, task.episode_length, num_episodes)
    arrays = {
        "masks": np.asarray(masks, np.int32),
        "theta": teacher.theta,
        "a": teacher.a,
        "mask_index": episodes.mask_index,
        "latent": episodes.latent,
        "context_x": episodes.context_x,
        "context_y": episodes.context_y,
        "query_x": episodes.query_x,
        "query_y": episodes.query_y,
    }
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    if not (np.isfinite(arrays["context_y"]).all() and np.isfinite(arrays["query_y"]).all()):
        raise ArithmeticError("a label is not finite: the teacher's W(z) vanished; another seed draws another teacher")
    return arrays


def save_dataset(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with replacing("out", path) as temporary:
        np.savez(temporary, allow_pickle=False, **arrays)
