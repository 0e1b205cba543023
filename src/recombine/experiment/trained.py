"""A trained model, from a run directory."""

import json
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError
from safetensors.numpy import load

from recombine.config import Config, OwnModelConfig
from recombine.config_file import parse_toml, stored_config
from recombine.errors import InputError
from recombine.experiment.rundir import CHECKPOINTS, CONFIG, METRICS, WEIGHTS, run_config
from recombine.files import NotAFile, read_file
from recombine.model.build import Model
from recombine.model.weights import replace_arrays
from recombine.train.checkpoint import DamagedCheckpoint, list_checkpoints, read_checkpoint
from recombine.train.step import init_state

LOSSES = "losses"
LARGEST_WEIGHTS = 1 << 32


class Trained(NamedTuple):
    """A model, what it was trained with, and for how many steps."""

    config: Config
    model: Model
    step: int


def load_trained(run: Path) -> Trained:
    """The newest good checkpoint's model. A user's own class must have been imported by then."""
    if not (run / CONFIG).is_file():
        raise InputError("run", str(run), f"not a run directory: it has no {CONFIG}")
    damage = "it has no checkpoint yet"
    for path in list_checkpoints(run / CHECKPOINTS):
        try:
            checkpoint = read_checkpoint(path)
            if CONFIG not in checkpoint.texts:
                raise DamagedCheckpoint(f"{path.name} has no {CONFIG}")
        except DamagedCheckpoint as error:
            damage = str(error)
            continue
        config = stored_config(parse_toml(checkpoint.texts[CONFIG], str(path / CONFIG)))
        arrays = {name: array for name, array in checkpoint.arrays.items() if name != LOSSES}
        return Trained(config, replace_arrays(init_state(config), arrays, str(run)).model, checkpoint.step)
    if (run / WEIGHTS).is_file():
        return _load_exported(run)
    if not (run / CHECKPOINTS).is_dir():
        raise InputError("run", str(run), "has no parameters; `recombine export --weights` takes them along")
    raise InputError("run", str(run), f"no good checkpoint ({damage})")


def _load_exported(run: Path) -> Trained:
    """Of a run that was exported: its parameters are in one file, and the last row of metrics tells the step."""
    config = run_config(run)
    try:
        arrays = load(read_file(run / WEIGHTS, LARGEST_WEIGHTS))
        step = int(json.loads(read_file(run / METRICS).splitlines()[-1])["step"])
    except (NotAFile, SafetensorError, ValueError, LookupError, TypeError) as error:
        raise InputError("run", str(run), f"its {WEIGHTS} or {METRICS} cannot be read ({error})") from error
    return Trained(config, replace_arrays(init_state(config).model, arrays, str(run / WEIGHTS)), step)


def own_model(config: Config) -> str | None:
    """The class that has to be imported to build the model, if it is a user's own."""
    return config.model.kind if isinstance(config.model, OwnModelConfig) else None
