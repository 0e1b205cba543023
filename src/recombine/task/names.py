"""The names of splits and controls, without JAX."""

from typing import Literal, get_args

Split = Literal["train", "in_dist", "ood", "control"]
EVAL_SPLITS: tuple[Split, ...] = get_args(Split)[1:]

Control = Literal["teacher", "modules"]
"""What the control draws afresh for each episode: the whole teacher, or θ alone with the readout `a` kept."""
