"""Splits: where an episode comes from."""

from typing import get_args

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from recombine.checks import check_choice, check_size
from recombine.stream import Stream, stream_key
from recombine.task.episode import Episode, sample_control_episodes, sample_episodes
from recombine.task.names import Control, Split
from recombine.task.support import Support
from recombine.task.teacher import Teacher, check_teacher, init_teacher


def mask_array(support: Support, split: Split) -> Float[Array, "S M"]:
    return jnp.asarray(support.masks_of(split), jnp.float32)


def run_teacher(seed: int, support: Support, input_dim: int, hidden_dim: int) -> Teacher:
    """The teacher that a seed draws."""
    return _jit_teacher(stream_key(seed, Stream.teacher), support.num_modules, input_dim, hidden_dim)


def sample_split(
    seed: int,
    split: Split,
    teacher: Teacher,
    support: Support,
    length: int,
    num_episodes: int,
    *,
    step: int | Int[Array, ""] = 0,
    control: Control = "teacher",
) -> tuple[Teacher, Episode]:
    """A batch of a split's episodes, and the teacher that labels them (for `control`, one per episode)."""
    check_choice("split", split, *get_args(Split))
    check_size("length", length, least=2)
    key = stream_key(seed, Stream[split], step)
    masks = mask_array(support, split)
    check_teacher(teacher, support.masks_of(split))
    if split == "control":
        return _jit_control(key, teacher, masks, length, num_episodes, control)
    return teacher, _jit_episodes(key, teacher, masks, length, num_episodes)


def teacher_axis(split: Split) -> int | None:
    """The `vmap` axis of the teacher that `sample_split` returns."""
    return 0 if split == "control" else None


_jit_teacher = eqx.filter_jit(init_teacher)
_jit_episodes = eqx.filter_jit(sample_episodes)
_jit_control = eqx.filter_jit(sample_control_episodes)
