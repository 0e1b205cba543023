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
from recombine.storage.checkpoint import Checkpoint, DamagedCheckpoint, checkpoint_path, newest_good, read_checkpoint
from recombine.storage.integrity import Recorded, check_exported, recorded
from recombine.storage.reader import last_row_of, parse_config
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
    return load_recorded(path, below, say)[0]


def load_recorded(
    path: Path, below: Path | None = None, say: Callable[[str], None] = lambda text: None
) -> tuple[TrainedModel, Recorded]:
    """The model, and the configuration and metrics that were stored with its parameters.

    A run may be training: what is read separately may be of two checkpoints.
    """

    def read(path: Path) -> Checkpoint:
        checkpoint = read_checkpoint(path, below)
        if CONFIG not in checkpoint.texts:
            raise DamagedCheckpoint(f"{path.name} has no {CONFIG}")
        return checkpoint

    source = open_run(path, below)
    found, damage = newest_good(path / CHECKPOINTS, read, below)
    for error in damage:
        say(f"{path}: skipping a damaged checkpoint: {error}")
    if found is not None:
        where = checkpoint_path(path / CHECKPOINTS, found.step) / CONFIG
        config = stored_config(parse_toml(found.texts[CONFIG], str(where)))
        arrays = {name: array for name, array in found.arrays.items() if name != LOSSES}
        trained = TrainedModel(config, restore_state(config, arrays, str(path)).model, found.step)
        return trained, Recorded(found.texts[CONFIG], found.texts.get(METRICS, ""), ())
    if source.has(WEIGHTS):
        return _load_exported(source)
    if not is_directory(path / CHECKPOINTS, below):
        raise InputError("run", str(path), "has no parameters; `recombine export --weights` includes them")
    raise InputError("run", str(path), f"no good checkpoint ({damage[-1] if damage else 'it has no checkpoint yet'})")


def _load_exported(source: RunSource) -> tuple[TrainedModel, Recorded]:
    """Load the model of an exported run: its parameters are in one file, its step is in the last row of metrics."""
    found = recorded(source)
    config, row = parse_config(source, found.config), last_row_of(found.metrics)
    try:
        data = source.read(WEIGHTS, LARGEST_WEIGHTS)
        # All three against one manifest: the run may be exported again meanwhile, at a later step.
        check_exported(source, {CONFIG: found.config.encode(), METRICS: found.metrics.encode(), WEIGHTS: data})
        arrays = load(data)
    except (NotAFile, SafetensorError, ValueError, KeyError) as error:
        raise InputError("run", str(source.path), f"its {WEIGHTS} cannot be read ({error})") from error
    if row is None:
        raise InputError("run", str(source.path), f"its {METRICS} has no row that can be read")
    where = str(source.path / WEIGHTS)
    model = replace_arrays(_shapes(config, arrays, where).model, arrays, where)
    return TrainedModel(config, model, row.step), found


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
