"""`rc.predict` and `rc.patch`: a model's predictions, as they are and with the latent replaced."""

from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jax import Array

from recombine.checks import check_size
from recombine.config.model import EXPLICIT_STEPS, MOST_INFERENCE_STEPS
from recombine.config.schema import Config
from recombine.errors import InputError
from recombine.measure.evaluated import EvaluatedModel
from recombine.measure.latent.explicit_inference import infer_explicitly
from recombine.measure.latent.module_recovery import execute_many, fit_map, scaled_latent
from recombine.measure.predict import forward_episodes
from recombine.measure.r2 import score
from recombine.model.custom import adapted
from recombine.model.interface import LatentModel, Model
from recombine.notebook.load import Run
from recombine.notebook.sample import Episodes
from recombine.run.machine import prepare
from recombine.support.split import CONTROL_SPLITS


@dataclass(frozen=True)
class Prediction:
    """A model's predictions for episodes, and what it inferred."""

    episodes: Episodes
    y: Array
    """The predicted label of each query."""
    latent: Array | None = None
    """The latent that was inferred, or the one that was put in its place; None if the model has none."""
    residual: Array | None = None
    """The residual stream at the last token, after the embedding and after each block."""

    @property
    def r2(self) -> float:
        """1 for the truth, 0 for the mean of the context."""
        return score(self.y, self.episodes.batch).r2

    @property
    def mse(self) -> float:
        return score(self.y, self.episodes.batch).mse

    def __repr__(self) -> str:
        return f"Prediction({self.episodes!r}: R² = {self.r2:.3f})"


def predict(model: "Run | Model", episodes: Episodes) -> Prediction:
    """The predictions of a run's model, or of any model of yours, `model(context_x, context_y, query_x)`."""
    prepare()
    found = model.model if isinstance(model, Run) else adapted(model)
    output = forward_episodes(episodes.config, found, episodes.batch)
    return Prediction(episodes, output.y, output.latent, output.residual)


def patch(
    model: "Run | Model",
    episodes: Episodes,
    latent: Any,
    config: Config | None = None,
    *,
    steps: int | None = None,
) -> Prediction:
    """The predictions with the inferred latent replaced, for a model that executes one.

    `latent` is an array with a latent for each episode (or one for all), or one of these words:
    "explicit": the inferred latent after `steps` of explicit inference on the context (3), besides those of the model;
    "true": the teacher's latent, mapped to the model's by the affine map that fits best on trained tasks;
    "wrong": that of the previous episode. A model that is not a run is examined on the tasks of `config`; the default
    is that of the episodes.
    """
    prepare()
    found = model.model if isinstance(model, Run) else model
    if not isinstance(found, LatentModel):
        name = model.label if isinstance(model, Run) else type(found).__name__
        raise InputError("model", name, "infers no latent that could be replaced: it has no execute(latent, x)")
    num_steps = EXPLICIT_STEPS if steps is None else steps
    check_size("steps", num_steps, least=0, most=MOST_INFERENCE_STEPS)
    if steps is not None and not (isinstance(latent, str) and latent == "explicit"):
        raise InputError("steps", steps, 'only for latent="explicit"')
    inferred = forward_episodes(episodes.config, found, episodes.batch).latent
    assert inferred is not None
    if isinstance(latent, str) and latent == "explicit":
        chosen = np.asarray(infer_explicitly(found, inferred, episodes.batch, num_steps).latent[:, -1])
    elif isinstance(latent, str):
        of_run = model.config if isinstance(model, Run) else episodes.config
        chosen = _mapped(found, config or of_run, episodes, latent)
    else:
        chosen = np.asarray(latent, np.float32)
    if chosen.shape not in (inferred.shape, inferred.shape[1:]):
        raise InputError("latent", chosen.shape, f"shape {inferred.shape}, or {inferred.shape[1:]} for all episodes")
    given = jnp.broadcast_to(jnp.asarray(chosen, jnp.float32), inferred.shape)
    return Prediction(episodes, execute_many(found, given, episodes.query_x), given)


def _mapped(
    model: LatentModel, config: Config, episodes: Episodes, which: "Literal['true', 'wrong'] | str"
) -> np.ndarray:
    """The teacher's latents as the model would write them."""
    if which not in ("true", "wrong"):
        raise InputError("latent", which, "explicit, true, wrong, or an array")
    if episodes.split in CONTROL_SPLITS:
        raise InputError("episodes", episodes.split, "each has a teacher of its own, which the model does not know")
    evaluated = EvaluatedModel(config, model)
    inferred = evaluated.fit_output.latent
    to_inferred = fit_map(scaled_latent(evaluated.teacher, evaluated.fit_episodes.latent), np.asarray(inferred))
    mapped = to_inferred(scaled_latent(episodes.teacher, episodes.latent)).astype(np.float32)
    return mapped if which == "true" else np.roll(mapped, 1, axis=0)
