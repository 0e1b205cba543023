"""Interventions: does a model fail at inferring the task, or at executing it?

*A model with a latent.* The inferred latent is replaced before it is executed: by the image of the true latent (see
`recombine.measure.latent.module_recovery`), by that of another task, or by the midpoint of two inferred latents.

*A transformer.* At one point of the residual stream, the smallest possible change is made after which the probe decodes
the true latent, or that of another task. The control is a change of the same size in a random subspace.

"Another task" is always the task of the previous episode.
"""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from recombine.measure.evaluated import EvaluatedModel
from recombine.measure.latent.module_recovery import AffineMap, execute_many, fit_map, scaled_latent
from recombine.measure.predict import in_chunks
from recombine.measure.r2 import explained, score
from recombine.measure.ridge import Ridge
from recombine.model.forward import extra_pair
from recombine.model.interface import BatchOutput, LatentModel
from recombine.model.trunk import TrunkModel
from recombine.numerics import exact_jit
from recombine.record.codec import Count, Real, Record
from recombine.stream import Stream, stream_key
from recombine.task.episode import Episode
from recombine.task.teacher import Teacher


class LatentIntervention(Record, frozen=True):
    """R² with the inferred latent, and with each replacement."""

    inferred: Real
    true: Real
    wrong: Real
    interpolated: Real | None
    """At the midpoint of two tasks: the explained share of the variance of the teacher's labels there."""
    ceiling: Real
    """The R² that perfect modules would reach with `true`, given that the fitted map contains the shrinkage of this
    model's inference."""


class LatentInterventions(Record, frozen=True, tag_field="kind", tag="latent", omit_defaults=True):
    """The interventions on a model that executes a latent."""

    in_dist: LatentIntervention
    ood: LatentIntervention | None = None


class SubspaceIntervention(Record, frozen=True):
    """R² with the residual stream unchanged, and with each change at one point."""

    none: Real
    true: Real
    wrong: Real
    random: Real


class SubspaceAtPoint(Record, frozen=True, omit_defaults=True):
    """The interventions at one point of the residual stream; point 1 is after the first block."""

    point: Count
    in_dist: SubspaceIntervention
    ood: SubspaceIntervention | None = None


class SubspaceInterventions(Record, frozen=True, tag_field="kind", tag="subspace"):
    """The interventions on a transformer, after each of its blocks."""

    points: tuple[SubspaceAtPoint, ...]

    def __post_init__(self) -> None:
        if len({at.ood is None for at in self.points}) > 1:
            raise ValueError("some points have been measured out of distribution, others not")


Interventions = LatentInterventions | SubspaceInterventions


def measure_interventions(evaluated: EvaluatedModel) -> Interventions | None:
    """None for a model that has neither a latent to execute nor a trunk."""
    if evaluated.latent_model is not None:
        return LatentInterventions(**_on_latent(evaluated, evaluated.latent_model))
    if isinstance(evaluated.model, TrunkModel) and evaluated.probe is not None:
        return SubspaceInterventions(tuple(_on_subspaces(evaluated, evaluated.model)))
    return None


def _on_latent(evaluated: EvaluatedModel, model: LatentModel) -> dict[str, LatentIntervention]:
    teacher, inferred = evaluated.teacher, evaluated.fit_output.latent
    assert inferred is not None
    v = scaled_latent(teacher, evaluated.fit_episodes.latent)
    maps = LatentMaps(fit_map(v, inferred), fit_map(inferred, v))
    return {
        split: intervene_on_latent(
            model, teacher, episodes, evaluated.outputs[split], scaled_latent(teacher, episodes.latent), maps
        )
        for split, episodes in evaluated.episodes.items()
    }


def _on_subspaces(evaluated: EvaluatedModel, model: TrunkModel) -> Iterator[SubspaceAtPoint]:
    assert evaluated.probe is not None
    for point, fit in enumerate(evaluated.probe.residual[1:], start=1):
        key = stream_key(evaluated.config.seed, Stream.intervene, point)
        splits = {
            split: intervene_on_subspace(model, episodes, evaluated.outputs[split], fit, point, key)
            for split, episodes in evaluated.episodes.items()
        }
        yield SubspaceAtPoint(point, **splits)


class LatentMaps(NamedTuple):
    """Affine maps between the scaled latent v and the inferred latent, in both directions."""

    to_inferred: AffineMap
    to_v: AffineMap


def intervene_on_latent(
    model: LatentModel,
    teacher: Teacher,
    episodes: Episode,
    output: BatchOutput,
    v: Float[Array, "E M"],
    maps: LatentMaps,
) -> LatentIntervention:
    """R² after each replacement. `v` has the scaled latents of the episodes; the maps were fitted in distribution."""
    assert output.latent is not None
    mapped = jnp.asarray(maps.to_inferred(v), jnp.float32)
    perfect = _label(teacher, jnp.asarray(maps.to_v(mapped), jnp.float32), episodes.query_x)
    x = episodes.query_x
    middle = (output.latent + jnp.roll(output.latent, 1, axis=0)) / 2
    truth = _label(teacher, (v + jnp.roll(v, 1, axis=0)) / 2, x)
    return LatentIntervention(
        score(output.y, episodes).r2,
        score(execute_many(model, mapped, x), episodes).r2,
        score(execute_many(model, jnp.roll(mapped, 1, axis=0), x), episodes).r2,
        explained(execute_many(model, middle, x), truth),
        score(perfect, episodes).r2,
    )


@exact_jit
def _label(teacher: Teacher, v: Float[Array, "E M"], x: Float[Array, "E d"]) -> Float[Array, "E *out"]:
    return jax.vmap(teacher.label_scaled)(v, x)


def intervene_on_subspace(
    model: TrunkModel, episodes: Episode, output: BatchOutput, probe: Ridge, point: int, key: Key[Array, ""]
) -> SubspaceIntervention:
    """R² after each change at `point` (0: after the embedding, 1: after the first block), where `probe` reads."""
    assert output.residual is not None
    stream, z = np.asarray(output.residual[:, point], np.float64), np.asarray(episodes.latent, np.float64)
    true = smallest_change(stream, probe, z)
    wrong = smallest_change(stream, probe, np.roll(z, 1, axis=0))
    random = in_random_subspace(true, np.asarray(probe.weights), key)
    r2 = [
        score(predict_changed(model, episodes, jnp.asarray(c, jnp.float32), point), episodes).r2
        for c in (true, wrong, random)
    ]
    return SubspaceIntervention(score(output.y, episodes).r2, *r2)


def smallest_change(stream: np.ndarray, probe: Ridge, z: np.ndarray) -> np.ndarray:
    """The shortest vector to add to each row so that the probe decodes z from it.

    All latents of K-hot masks have the same sum, so the rank of the probe's weights is one less than the size of z. The
    smallest singular value is only rounding error: `rcond` keeps it from being inverted.
    """
    weights = np.asarray(probe.weights, np.float64)
    decoded = stream @ weights + np.asarray(probe.intercept, np.float64)
    return (z - decoded) @ np.linalg.pinv(weights, rcond=1e-5)


def in_random_subspace(change: np.ndarray, weights: np.ndarray, key: Key[Array, ""]) -> np.ndarray:
    """The change, rotated from the probe's subspace into a random one. Every row keeps its length."""
    basis, _ = np.linalg.qr(weights)
    draws = np.asarray(jax.random.normal(key, basis.shape, jnp.float32), np.float64)
    return change @ basis @ np.linalg.qr(draws)[0].T


@exact_jit
def predict_changed(
    model: TrunkModel, episodes: Episode, change: Float[Array, "E embed"], point: int
) -> Float[Array, "E *out"]:
    """The predictions with `change` added to the last token's residual stream at a point."""

    def one(context_x: Array, context_y: Array, query_x: Array, change: Array) -> Float[Array, "*out"]:
        X = model.embed(context_x, context_y, query_x)
        for layer in range(len(model.trunk.blocks)):
            if layer == point:
                X = X.at[-1].add(change)
            X, _ = model.trunk.apply_block(layer, X)
        if point == len(model.trunk.blocks):
            X = X.at[-1].add(change)
        return model.read_out(X, context_x, context_y, query_x)[0]

    inputs = (*episodes.shown(extra_pair(model)), change)
    return in_chunks(lambda chunk: jax.vmap(one)(*chunk), inputs)
