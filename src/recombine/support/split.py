"""Splits: the distributions that episodes are drawn from."""

from typing import Literal, get_args

Split = Literal["train", "in_dist", "ood", "control", "control_modules"]
"""control: a fresh teacher for each episode. control_modules: fresh modules θ, but the teacher's own readout `a`."""

EVAL_SPLITS: tuple[Split, ...] = get_args(Split)[1:]
"""The splits that a model is scored on."""
TEACHER_SPLITS: tuple[Split, ...] = ("in_dist", "ood")
"""The splits whose tasks are made of the teacher's own modules: they have scores by mask, and a latent to decode."""
CONTROL_SPLITS: tuple[Split, ...] = ("control", "control_modules")

FilePart = Split | Literal["novel"]
"""A part of a file of episodes. novel: held-out tasks, each with many queries."""
Sampled = FilePart | Literal["all"]
"""What a file of episodes has. all: every split that a model is scored on, and the novel part."""
SAMPLED: tuple[Sampled, ...] = (*get_args(Split), "novel", "all")
