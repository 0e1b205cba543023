"""Samples the episodes of a split: from trained masks, held-out masks, or fresh teachers."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from recombine.checks import LARGEST_COUNT, check_choice, check_size
from recombine.numerics import exact_jit
from recombine.stream import Stream, stream_key
from recombine.support.masks import Mask
from recombine.support.split import CONTROL_SPLITS, Split
from recombine.support.support import Support
from recombine.task.episode import Episode, sample_control_episodes, sample_episodes
from recombine.task.teacher import Teacher, check_teacher

T = TypeVar("T")

MASKS_AT_ONCE = 32
EPISODES_AT_ONCE = 256


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
    in_pieces: bool = False,
) -> tuple[Teacher, Episode]:
    """A batch of a split's episodes, and the teacher that labels them (for the controls, one per episode).

    With `in_pieces`, one compiled program serves any number of episodes; otherwise each number has its own. The last
    bits of the two may differ, so a run's measures, which are stored, keep to the second.
    """
    check_choice("split", split, *get_args(Split))
    if split not in CONTROL_SPLITS:
        masks = support.masks_of(split)
        episodes = sample_masks(
            seed, Stream[split], teacher, masks, length, num_episodes, step=step, in_pieces=in_pieces
        )
        return teacher, episodes
    check_size("length", length, least=2)
    key, masks = stream_key(seed, Stream[split], step), mask_rows(support.masks_of(split))
    keep_readout = jnp.asarray(split == "control_modules")  # an array, so that both control splits share one program

    def sample(count: int, first: int | Int[Array, ""]) -> tuple[Teacher, Episode]:
        return _jit_control(key, teacher, masks.rows, length, count, keep_readout, masks.num_masks, first)

    return _in_pieces(sample, num_episodes) if in_pieces else sample(num_episodes, 0)


def sample_masks(
    seed: int,
    stream: Stream,
    teacher: Teacher,
    masks: Sequence[Mask],
    length: int,
    num_episodes: int,
    *,
    step: int | Int[Array, ""] = 0,
    in_pieces: bool = False,
) -> Episode:
    """A batch of episodes on any masks, drawn from a given stream."""
    check_size("length", length, least=2)
    check_teacher(teacher, masks)
    key, (rows, num_masks) = stream_key(seed, stream, step), mask_rows(masks)

    def sample(count: int, first: int | Int[Array, ""]) -> Episode:
        return _jit_episodes(key, teacher, rows, length, count, first, num_masks)

    return _in_pieces(sample, num_episodes) if in_pieces else sample(num_episodes, 0)


def _in_pieces(sample: Callable[[int, Int[Array, ""]], T], num_episodes: int) -> T:
    """Episodes sampled in pieces of one size, and joined by NumPy, which compiles nothing."""
    check_size("episodes", num_episodes, most=LARGEST_COUNT)
    firsts = range(0, num_episodes, EPISODES_AT_ONCE)
    pieces = [jax.device_get(sample(EPISODES_AT_ONCE, jnp.asarray(first, jnp.int32))) for first in firsts]
    return jax.tree.map(lambda *arrays: jax.device_put(np.concatenate(arrays)[:num_episodes]), *pieces)


def teacher_axis(split: Split) -> int | None:
    """The `vmap` axis of the teacher that `sample_split` returns."""
    return 0 if split in CONTROL_SPLITS else None


_jit_episodes = exact_jit(sample_episodes)
_jit_control = exact_jit(sample_control_episodes)
