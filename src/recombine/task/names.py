"""The names of the splits, without JAX."""

from typing import Literal, get_args

Split = Literal["train", "in_dist", "ood", "control", "control_modules"]
"""control: a fresh teacher for each episode. control_modules: fresh modules θ, the readout `a` kept."""

EVAL_SPLITS: tuple[Split, ...] = get_args(Split)[1:]
CONTROL_SPLITS: tuple[Split, ...] = get_args(Split)[3:]
