"""A trained model, from a run directory or an archive."""

from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError
from safetensors.numpy import load

from recombine.config.schema import Config, CustomModelConfig
from recombine.config.toml import parse_toml, stored_config
from recombine.errors import InputError
from recombine.files import NotAFile
from recombine.model.interface import Model
from recombine.model.weights import replace_arrays
from recombine.storage.checkpoint import DamagedCheckpoint, list_checkpoints, read_checkpoint
from recombine.storage.reader import last_row, read_config
from recombine.storage.source import CHECKPOINTS, CONFIG, METRICS, WEIGHTS, RunSource, open_run
from recombine.train.step import init_state

LOSSES = "losses"  # among the arrays of a checkpoint: the losses since the last row of metrics
LARGEST_WEIGHTS = 1 << 32


class TrainedModel(NamedTuple):
    """A model, what it was trained with, and for how many steps."""

    config: Config
    model: Model
    step: int


def load_model(path: Path) -> TrainedModel:
    """The model of a run's newest good checkpoint. A custom class must have been imported by then."""
    source = open_run(path)
    damage = "it has no checkpoint yet"
    for checkpoint_path in list_checkpoints(path / CHECKPOINTS):
        try:
            checkpoint = read_checkpoint(checkpoint_path)
            if CONFIG not in checkpoint.texts:
                raise DamagedCheckpoint(f"{checkpoint_path.name} has no {CONFIG}")
        except DamagedCheckpoint as error:
            damage = str(error)
            continue
        config = stored_config(parse_toml(checkpoint.texts[CONFIG], str(checkpoint_path / CONFIG)))
        arrays = {name: array for name, array in checkpoint.arrays.items() if name != LOSSES}
        return TrainedModel(config, replace_arrays(init_state(config), arrays, str(path)).model, checkpoint.step)
    if source.has(WEIGHTS):
        return _load_exported(source)
    if not (path / CHECKPOINTS).is_dir():
        raise InputError("run", str(path), "has no parameters; `recombine export --weights` takes them along")
    raise InputError("run", str(path), f"no good checkpoint ({damage})")


def _load_exported(source: RunSource) -> TrainedModel:
    """Of a run that was exported: its parameters are in one file, and the last row of metrics tells the step."""
    config, row = read_config(source), last_row(source)
    try:
        arrays = load(source.read(WEIGHTS, LARGEST_WEIGHTS))
    except (NotAFile, SafetensorError, ValueError) as error:
        raise InputError("run", str(source.path), f"its {WEIGHTS} cannot be read ({error})") from error
    if row is None:
        raise InputError("run", str(source.path), f"its {METRICS} has no row that can be read")
    where = str(source.path / WEIGHTS)
    return TrainedModel(config, replace_arrays(init_state(config).model, arrays, where), row.step)


def custom_model(config: Config) -> str | None:
    """The class that has to be imported to build the model, if it is a custom one."""
    return config.model.kind if isinstance(config.model, CustomModelConfig) else None
