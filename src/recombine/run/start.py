"""The parameters that training starts from, where they are not random: those of another run, or the construction.

They are read once, at the first start. From then on the run's own checkpoints have all that it needs.
"""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from recombine.config.model import BASELINES
from recombine.config.schema import CONSTRUCTION, Config
from recombine.config.task import TaskConfig
from recombine.errors import InputError
from recombine.model.architecture.linear_attention import LinearAttention, from_construction
from recombine.model.interface import Model
from recombine.model.weights import named_arrays, replace_arrays
from recombine.run.load import TrainedModel, load_model
from recombine.storage.checkpoint import list_checkpoints
from recombine.storage.reader import run_config
from recombine.storage.source import CHECKPOINTS
from recombine.support.support import Support
from recombine.task.teacher import HypernetworkTeacher, config_teacher
from recombine.train.step import State, init_state, state_shapes

FIELD = "train.start_from"


class Start(NamedTuple):
    """Parameters by name, and their digest."""

    arrays: dict[str, np.ndarray]
    digest: str
    source: str


def check_start(config: Config, path: Path) -> None:
    """Refuse a start that cannot be read, before the directory of a new run is made."""
    if config.train.start_from is not None and not list_checkpoints(path / CHECKPOINTS):
        read_start(config)


def read_start(config: Config) -> Start | None:
    """The parameters of the run that `train.start_from` names; None if training starts from random ones."""
    if config.train.start_from is None:
        return None
    source = start_path(config)
    if source == CONSTRUCTION:
        arrays = named_arrays(_constructed(config))
        return Start(arrays, _digest(arrays), source)
    arrays = named_arrays(_trained(config, source).model)
    try:
        replace_arrays(state_shapes(config).model, arrays, source)
    except InputError as error:
        raise InputError(FIELD, source, f"a run of the same sizes: {error.expected}") from error
    return Start(arrays, _digest(arrays), source)


def start_path(config: Config) -> str:
    """The path in `train.start_from`, with this run's seed and support filled in: seeds and supports of one experiment
    have one configuration, and each starts from its own run."""
    given = config.train.start_from or ""
    return given.replace("{seed}", str(config.seed)).replace("{support}", config.task.support.name)


def first_state(state: State, start: Start | None) -> State:
    """A fresh state with the parameters of the start. The optimiser begins anew."""
    if start is None:
        return state
    return state._replace(model=replace_arrays(state.model, start.arrays, start.source))


def _trained(config: Config, source: str) -> TrainedModel:
    try:
        other = run_config(Path(source))
        if other.model.kind != config.model.kind:  # before it is built: a file names no class to import
            raise InputError(FIELD, source, f"a run of {config.model.kind}; it is one of {other.model.kind}")
        if config.train.dream is not None and _teacher_of(other) != _teacher_of(config):
            raise InputError(FIELD, source, "a run on the same teacher, if the model dreams: the seeds or tasks differ")
        return load_model(Path(source))
    except InputError as error:
        if error.field == FIELD:
            raise
        raise InputError(FIELD, source, f"{CONSTRUCTION}, or a run with parameters: {error.expected}") from error


def _constructed(config: Config) -> Model:
    """The linear-attention model with the construction of Appendix A for the run's own teacher."""
    model = init_state(config).model if config.model.kind == BASELINES["linear-attention"] else None
    if not isinstance(model, LinearAttention) or not model.given_latent:
        expected = "linear-attention with model.options.given_latent = true: the construction is given the latent"
        raise InputError(FIELD, CONSTRUCTION, expected)
    teacher, task = config_teacher(config), config.task
    if (
        not isinstance(teacher, HypernetworkTeacher)
        or task.unit_norm
        or task.num_layers > 1
        or task.activation != "gelu"
    ):
        expected = "the hypernetwork of Appendix A: task.unit_norm = false, one hidden layer, GELU"
        raise InputError(FIELD, CONSTRUCTION, expected)
    return from_construction(model, task.weight_scale * teacher.theta, teacher.a)


def _teacher_of(config: Config) -> tuple[TaskConfig, int]:
    """All that determines a run's teacher."""
    any_masks = Support("", ((1,) * config.task.num_modules,), ())
    task = replace(config.task, support=any_masks, episode_length=2, label_noise=0.0, input_distribution="uniform")
    return task, config.seed if config.teacher_seed is None else config.teacher_seed


def _digest(arrays: dict[str, np.ndarray]) -> str:
    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype} {array.shape}\n".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()
