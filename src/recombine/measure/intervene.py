"""Interventions: is it inference or execution that fails?

*A model with a latent.* Its latent is replaced before it is executed: by what the true latent maps to (see
`recombine.measure.modules`), by another task's, by the middle between two tasks' inferred latents.

*A transformer.* At one point of the residual stream, the subspace that the probe reads is set to the value that decodes
to the true latent, by the smallest change that does it; or to another task's. The control is a change of the same
size in a random subspace. "Another task" is that of the episode before.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from recombine.measure.modules import AffineMap, execute_many, explained
from recombine.measure.predict import in_chunks
from recombine.measure.r2 import score
from recombine.measure.ridge import Ridge
from recombine.model.batch import given_latent
from recombine.model.output import Reading
from recombine.model.trunk import TrunkModel
from recombine.task.episode import Episode
from recombine.task.teacher import Teacher, task_network


class LatentIntervention(NamedTuple):
    """R² with the latent as inferred, and replaced."""

    inferred: float
    true: float
    wrong: float
    interpolated: float
    """Of the middle between two tasks, the share of that task's variance which is explained."""
    ceiling: float
    """What perfect modules would reach with `true`: the map has the shrinkage of this model's inference in it."""


class LatentMaps(NamedTuple):
    """Between the scaled latent v and the inferred one, both ways."""

    to_code: AffineMap
    to_v: AffineMap


def intervene_on_latent(
    model: Any, teacher: Teacher, episodes: Episode, reading: Reading, v: Float[Array, "E M"], maps: LatentMaps
) -> LatentIntervention:
    """v: the episodes' scaled latents; the maps are fitted in distribution."""
    assert reading.latent is not None
    mapped = jnp.asarray(maps.to_code(v), jnp.float32)
    perfect = _label(teacher, jnp.asarray(maps.to_v(mapped), jnp.float32), episodes.query_x)
    x = episodes.query_x
    middle = (reading.latent + jnp.roll(reading.latent, 1, axis=0)) / 2
    truth = _label(teacher, (v + jnp.roll(v, 1, axis=0)) / 2, x)
    return LatentIntervention(
        score(reading.y, episodes).r2,
        score(execute_many(model, mapped, x), episodes).r2,
        score(execute_many(model, jnp.roll(mapped, 1, axis=0), x), episodes).r2,
        explained(execute_many(model, middle, x), truth),
        score(perfect, episodes).r2,
    )


@eqx.filter_jit
def _label(teacher: Teacher, v: Float[Array, "E M"], x: Float[Array, "E d"]) -> Float[Array, "E"]:
    W = jnp.einsum("em,mhd->ehd", v, teacher.theta)
    return jax.vmap(lambda W, x: task_network(W, teacher.a, x))(W, x)


class SubspaceIntervention(NamedTuple):
    """R² with the residual stream as it is, and changed at one point."""

    none: float
    true: float
    wrong: float
    random: float


def intervene_on_subspace(
    model: TrunkModel, episodes: Episode, reading: Reading, probe: Ridge, point: int, key: Key[Array, ""]
) -> SubspaceIntervention:
    """`probe` reads the residual stream at `point`: 0 is after the embedding, 1 after the first block."""
    assert reading.residual is not None
    stream, z = np.asarray(reading.residual[:, point], np.float64), np.asarray(episodes.latent, np.float64)
    true = smallest_change(stream, probe, z)
    wrong = smallest_change(stream, probe, np.roll(z, 1, axis=0))
    random = in_random_subspace(true, np.asarray(probe.weights), key)
    r2 = [
        score(predict_changed(model, episodes, jnp.asarray(c, jnp.float32), point), episodes).r2
        for c in (true, wrong, random)
    ]
    return SubspaceIntervention(score(reading.y, episodes).r2, *r2)


def smallest_change(stream: np.ndarray, probe: Ridge, z: np.ndarray) -> np.ndarray:
    """The shortest vector to add to each row so that the probe reads z there.

    The latents of K-hot masks all have the same sum, so that the probe's weights have one direction less than z has
    entries: what is left of it is rounding, and is not to be inverted.
    """
    weights = np.asarray(probe.weights, np.float64)
    decoded = stream @ weights + np.asarray(probe.intercept, np.float64)
    return (z - decoded) @ np.linalg.pinv(weights, rcond=1e-5)


def in_random_subspace(change: np.ndarray, weights: np.ndarray, key: Key[Array, ""]) -> np.ndarray:
    """The change, with the probe's subspace turned into a random one: every row keeps its length."""
    basis, _ = np.linalg.qr(weights)
    draws = np.asarray(jax.random.normal(key, basis.shape, jnp.float32), np.float64)
    return change @ basis @ np.linalg.qr(draws)[0].T


@eqx.filter_jit
def predict_changed(
    model: TrunkModel, episodes: Episode, change: Float[Array, "E embed"], point: int
) -> Float[Array, "E"]:
    """The predictions with `change` added to the last token's residual stream at a point."""

    def one(context_x: Array, context_y: Array, query_x: Array, change: Array) -> Float[Array, ""]:
        X = model.embed(context_x, context_y, query_x)
        for layer in range(len(model.trunk.blocks)):
            if layer == point:
                X = X.at[-1].add(change)
            X, _ = model.trunk.apply_block(layer, X)
        if point == len(model.trunk.blocks):
            X = X.at[-1].add(change)
        return model.read_out(X, query_x)[0]

    inputs = (*episodes.shown(given_latent(model)), change)
    return in_chunks(lambda chunk: jax.vmap(one)(*chunk), inputs)
