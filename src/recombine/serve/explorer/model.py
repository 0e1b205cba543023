"""Loads a trained model for the explorer: parameters, teacher, and the maps between latents."""

import stat
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from recombine.config.schema import Config
from recombine.errors import InputError
from recombine.measure.latent.module_recovery import AffineMap, fit_map, scaled_latent
from recombine.measure.probe import fit_probe
from recombine.measure.ridge import Ridge
from recombine.measure.snapshot import forward_episodes
from recombine.model.interface import LatentModel, Model
from recombine.no_links import is_directory, stat_below
from recombine.run.load import load_model
from recombine.serve.explorer.description import why_not_explored
from recombine.serve.explorer.in_page import stored_maps
from recombine.storage.archive import split_path
from recombine.storage.checkpoint import list_checkpoints
from recombine.storage.source import CHECKPOINTS, WEIGHTS
from recombine.stream import Stream
from recombine.task.sample import sample_masks
from recombine.task.teacher import Teacher, config_teacher

PROBE_EPISODES = 2_000


class ExploredModel(NamedTuple):
    """A run's model, with the probe and the map that decode and replace its latent."""

    config: Config
    model: Model
    step: int
    teacher: Teacher
    probe: Ridge | None
    """To the teacher's latent: from the model's own, where that can be replaced, or from the last residual stream."""
    latent_dim: int | None
    """The size of the latent, where it can be replaced."""
    to_inferred: AffineMap | None
    """From the teacher's scaled latent to the model's own, where that can be replaced."""
    stamp: int
    """The `parameters_stamp` of the run when the model was loaded."""


def load_explored(path: Path, below: Path | None = None, stored: bool = True) -> ExploredModel:
    """Load the model of a run, in a directory or in an archive. No link below the directory `below` is followed.

    Probe and map of a demo model are read, not fitted, unless `stored` is False.
    """
    stamp = parameters_stamp(path, below)
    _check_no_links(path, below)
    config, model, step = load_model(path, below)
    if why := why_not_explored(config.task, model):
        raise InputError("run", path.name, why)
    teacher, latent_dim = config_teacher(config), _latent_dim(config, model)
    if maps := stored_maps(path) if stored else None:
        probe, to_inferred = maps[0] and Ridge(*maps[0]), maps[1] and AffineMap(*maps[1])
    else:
        probe, to_inferred = _fit(config, model, teacher, latent_dim)
    return ExploredModel(config, model, step, teacher, probe, latent_dim, to_inferred, stamp)


def parameters_stamp(path: Path, below: Path | None = None) -> int:
    """A number that changes when a run has new parameters: a new checkpoint, or a changed archive."""
    inside = None if is_directory(path, below) else split_path(path, below)
    files = [path / CHECKPOINTS, path / WEIGHTS] if inside is None else [inside[0]]
    return max((found.st_mtime_ns for file in files if (found := stat_below(file, below))), default=0)


def _fit(
    config: Config, model: Model, teacher: Teacher, latent_dim: int | None
) -> tuple[Ridge | None, AffineMap | None]:
    """The probe and the map to the model's latent, both fitted on masks that the model was trained on."""
    task = config.task
    episodes = sample_masks(config.seed, Stream.probe, teacher, task.support.masks, task.episode_length, PROBE_EPISODES)
    output = forward_episodes(config, model, episodes)
    probe = fit_probe(output, episodes.latent)
    if probe is not None and latent_dim is not None and output.latent is not None:
        return probe.latent, fit_map(scaled_latent(teacher, episodes.latent), output.latent)
    return None if probe is None or not probe.residual else probe.residual[-1], None


def _check_no_links(path: Path, below: Path | None) -> None:
    """Refuse a run whose checkpoints are links. They are not followed, and would otherwise just seem to be missing."""
    checkpoints = path / CHECKPOINTS
    for directory in (checkpoints, *list_checkpoints(checkpoints, below)):
        found = stat_below(directory, below)
        if found is not None and stat.S_ISLNK(found.st_mode):
            raise InputError("run", path.name, f"its {directory.name} is a symbolic link, which serve does not follow")


def _latent_dim(config: Config, model: Model) -> int | None:
    x, y = jnp.zeros((1, config.task.input_dim)), jnp.zeros(1)
    if not isinstance(model, LatentModel):
        return None
    latent = jax.eval_shape(lambda: model(x, y, x[0]).trace.latent)
    return None if latent is None else latent.shape[0]
