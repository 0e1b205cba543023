"""Loads a trained model from a run directory or an archive."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from recombine.config.model import MODEL_CONFIGS, SHIPPED, CustomModelConfig
from recombine.config.schema import Config
from recombine.config.toml import config_tables, parse_toml, stored_config
from recombine.errors import InputError
from recombine.files import NotAFile
from recombine.model.build import count_parameters
from recombine.model.interface import Model
from recombine.model.weights import replace_arrays
from recombine.no_links import is_directory
from recombine.storage.checkpoint import DamagedCheckpoint, list_checkpoints, read_checkpoint
from recombine.storage.integrity import check_exported
from recombine.storage.reader import last_row, read_config
from recombine.storage.source import CHECKPOINTS, CONFIG, METRICS, WEIGHTS, RunSource, open_run
from recombine.train.step import State, state_shapes

LOSSES = "losses"  # the name of an array in a checkpoint: the losses since the last row of metrics
LARGEST_WEIGHTS = 1 << 32


class TrainedModel(NamedTuple):
    """A model, its configuration, and the number of steps it was trained for."""

    config: Config
    model: Model
    step: int

    def __repr__(self) -> str:
        return (
            f"TrainedModel({self.config.model.label}, {count_parameters(self.model):,} parameters, step {self.step:,})"
        )


def load_model(path: Path, below: Path | None = None, say: Callable[[str], None] = lambda text: None) -> TrainedModel:
    """The model of a run's newest good checkpoint. A custom class must have been imported before.

    With `below`, a directory that the user named, no link below that directory is followed.
    """
    source = open_run(path, below)
    damage = "it has no checkpoint yet"
    for checkpoint_path in list_checkpoints(path / CHECKPOINTS, below):
        try:
            checkpoint = read_checkpoint(checkpoint_path, below)
            if CONFIG not in checkpoint.texts:
                raise DamagedCheckpoint(f"{checkpoint_path.name} has no {CONFIG}")
        except DamagedCheckpoint as error:
            damage = str(error)
            say(f"{path}: skipping a damaged checkpoint: {damage}")
            continue
        config = stored_config(parse_toml(checkpoint.texts[CONFIG], str(checkpoint_path / CONFIG)))
        arrays = {name: array for name, array in checkpoint.arrays.items() if name != LOSSES}
        return TrainedModel(config, restore_state(config, arrays, str(path)).model, checkpoint.step)
    if source.has(WEIGHTS):
        return _load_exported(source)
    if not is_directory(path / CHECKPOINTS, below):
        raise InputError("run", str(path), "has no parameters; `recombine export --weights` includes them")
    raise InputError("run", str(path), f"no good checkpoint ({damage})")


def _load_exported(source: RunSource) -> TrainedModel:
    """Load the model of an exported run: its parameters are in one file, its step is in the last row of metrics."""
    config, row = read_config(source), last_row(source)
    try:
        data = source.read(WEIGHTS, LARGEST_WEIGHTS)
        check_exported(source, {WEIGHTS: data})
        arrays = load(data)
    except (NotAFile, SafetensorError, ValueError, KeyError) as error:
        raise InputError("run", str(source.path), f"its {WEIGHTS} cannot be read ({error})") from error
    if row is None:
        raise InputError("run", str(source.path), f"its {METRICS} has no row that can be read")
    where = str(source.path / WEIGHTS)
    return TrainedModel(config, replace_arrays(_shapes(config, arrays, where).model, arrays, where), row.step)


def restore_state(config: Config, arrays: Mapping[str, np.ndarray], where: str) -> State:
    """The stored state. Needs no more memory than the stored arrays, whatever sizes the configuration asks for."""
    return replace_arrays(_shapes(config, arrays, where), arrays, where)


def _shapes(config: Config, arrays: Mapping[str, np.ndarray], where: str) -> State:
    if config.model.kind in (*MODEL_CONFIGS, *SHIPPED):
        # Each block has its own arrays. Merely tracing the 65,536 blocks that a forged file may ask for takes hours.
        sizes = config_tables(config)["model"]
        num_layers = (sizes | sizes.get("options", {})).get("num_layers", 0)
        if isinstance(num_layers, int) and num_layers > len(arrays):
            raise InputError("weights", where, f"has {len(arrays)} arrays for a model of {num_layers} blocks")
    try:
        return state_shapes(config)
    except InputError:
        raise
    except Exception as error:  # raised by a custom class, which is built with options from a file
        if not isinstance(config.model, CustomModelConfig):
            raise
        why = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        raise InputError("run", where, f"its model, {config.model.kind}, cannot be built ({why})") from error
