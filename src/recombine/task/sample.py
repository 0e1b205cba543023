"""Samples the episodes of a split: from trained masks, held-out masks, or fresh teachers."""

from collections.abc import Sequence
from typing import NamedTuple, get_args

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from recombine.checks import check_choice, check_size
from recombine.numerics import exact_jit
from recombine.stream import Stream, stream_key
from recombine.support.masks import Mask
from recombine.support.split import CONTROL_SPLITS, Split
from recombine.support.support import Support
from recombine.task.episode import Episode, sample_control_episodes, sample_episodes
from recombine.task.teacher import Teacher, check_teacher

MASKS_AT_ONCE = 32


class MaskRows(NamedTuple):
    """Masks as rows, padded to a multiple of 32, so that one compiled program serves many sets of masks."""

    rows: Float[Array, "rows M"]
    num_masks: Int[Array, ""]


def mask_rows(masks: Sequence[Mask]) -> MaskRows:
    filled = [*masks, *[masks[0]] * (-len(masks) % MASKS_AT_ONCE)]
    return MaskRows(jnp.asarray(filled, jnp.float32), jnp.asarray(len(masks), jnp.int32))


def sample_split(
    seed: int,
    split: Split,
    teacher: Teacher,
    support: Support,
    length: int,
    num_episodes: int,
    *,
    step: int | Int[Array, ""] = 0,
) -> tuple[Teacher, Episode]:
    """A batch of a split's episodes, and the teacher that labels them (for the controls, one per episode)."""
    check_choice("split", split, *get_args(Split))
    if split not in CONTROL_SPLITS:
        masks = support.masks_of(split)
        return teacher, sample_masks(seed, Stream[split], teacher, masks, length, num_episodes, step=step)
    check_size("length", length, least=2)
    key, masks = stream_key(seed, Stream[split], step), mask_rows(support.masks_of(split))
    keep_readout = jnp.asarray(split == "control_modules")  # an array, so that both control splits share one program
    return _jit_control(key, teacher, masks.rows, length, num_episodes, keep_readout, masks.num_masks)


def sample_masks(
    seed: int,
    stream: Stream,
    teacher: Teacher,
    masks: Sequence[Mask],
    length: int,
    num_episodes: int,
    *,
    step: int | Int[Array, ""] = 0,
) -> Episode:
    """A batch of episodes on any masks, drawn from a given stream."""
    check_size("length", length, least=2)
    check_teacher(teacher, masks)
    key, (rows, count) = stream_key(seed, stream, step), mask_rows(masks)
    return _jit_episodes(key, teacher, rows, length, num_episodes, 0, count)


def teacher_axis(split: Split) -> int | None:
    """The `vmap` axis of the teacher that `sample_split` returns."""
    return 0 if split in CONTROL_SPLITS else None


_jit_episodes = exact_jit(sample_episodes)
_jit_control = exact_jit(sample_control_episodes)
