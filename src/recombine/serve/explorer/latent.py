"""The latents that a visitor can put in place of the one that a model infers."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recombine.errors import InputError
from recombine.measure.latent.explicit_inference import improve_latent
from recombine.measure.latent.module_recovery import scaled_latent
from recombine.model.interface import LatentModel
from recombine.numerics import exact_jit
from recombine.serve.explorer.exchange import MOST_STEPS, TRUE, Explicit, Latent, check_latent
from recombine.serve.explorer.model import ExploredModel
from recombine.serve.explorer.scene import Scene


class Replacement(NamedTuple):
    """A latent to execute, and the predictions for the queries before and after each step that led to it."""

    latent: Float[Array, "latent"]
    by_step: Float[Array, "after Q"] | None = None


def true_latent(run: ExploredModel, latent: Float[Array, "M"]) -> np.ndarray:
    """The latent that the model would infer if its inference were correct: the image of the task's latent."""
    assert run.to_inferred is not None
    return run.to_inferred(scaled_latent(run.teacher, latent[None])[0])


def replace_latent(
    run: ExploredModel, scene: Scene, latent: Latent | None, true: tuple[float, ...] | None
) -> Replacement | None:
    """The replacement that a visitor asked for. None if the latent stays as inferred."""
    if latent is None:
        return None
    size = run.latent_dim
    if size is None:
        raise InputError("latent", latent, f"{run.config.model.label} has no latent that can be replaced")
    if isinstance(latent, Explicit):
        return _explicit(run, scene, latent)
    values = true if isinstance(latent, str) else latent
    if values is None:
        raise InputError(
            "latent", TRUE, "numbers: the model was trained on another teacher, so there is no true latent"
        )
    if len(values) != size:
        raise InputError("latent", latent, f"{size} numbers, or {TRUE}")
    check_latent(values)
    return Replacement(jnp.asarray(values, jnp.float32))


def _explicit(run: ExploredModel, scene: Scene, asked: Explicit) -> Replacement:
    assert isinstance(run.model, LatentModel)
    latents, y = _improve(run.model, scene, jnp.asarray(asked.start == "zero"))
    if not np.isfinite(np.asarray(y)).all():
        raise InputError("latent", f"{asked.start}-{asked.steps}", "the model cannot execute the latent of the start")
    return Replacement(latents[asked.steps], y)


@exact_jit
def _improve(
    model: LatentModel, scene: Scene, from_zero: Array
) -> tuple[Float[Array, "after latent"], Float[Array, "after Q"]]:
    """The latents before and after each step, as many as can be asked for, and their predictions for the queries.

    All steps and both starts are one program, so that moving through them compiles nothing.
    """
    own = model(scene.context_x, scene.context_y, scene.query_x[0]).trace.latent
    assert own is not None
    start = jnp.where(from_zero, jnp.zeros_like(own), own)
    latents = improve_latent(model, start, scene.context_x, scene.context_y, MOST_STEPS)
    return latents, jax.vmap(lambda z: jax.vmap(lambda x: model.execute(z, x))(scene.query_x))(latents)
