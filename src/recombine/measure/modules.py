"""Module recovery: has a model with a latent found the teacher's modules?

The teacher divides W(z) by its norm, so what there is to infer is the scaled latent v = z / ‖W(z)‖. An affine map A
from v to the inferred latent ẑ is fitted in distribution. If the model has found the modules, then executing A v is the
teacher's task network at v for every v, single modules included, which it was never shown alone. Functions are
compared, not units: the student may be wider, and its units may be anything.

The ceiling is what perfect modules would reach with this model's inference, if they are the best for what it infers.
Inference from a short context shrinks towards the mean: C, the regression of v on ẑ, undoes A only as far as ẑ tells v.
The true modules at C A v are compared with those at v.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from recombine.task.mask import Mask, k_hot_masks
from recombine.task.teacher import Teacher, operator_norm, task_network


class Recovered(NamedTuple):
    """How much of the variance of the teacher's network at a mask the student's explains, and the ceiling."""

    mask: Mask
    r2: float
    ceiling: float


class Recovery(NamedTuple):
    """The map's own R² in distribution, and what was recovered: every module alone, and every pair."""

    map_r2: float
    single: list[Recovered]
    pairs: list[Recovered]


@eqx.filter_jit
def scaled_latent(teacher: Teacher, latent: Float[Array, "E M"]) -> Float[Array, "E M"]:
    """v = z / ‖W(z)‖: what the teacher's task network is linear in."""
    norms = jax.vmap(lambda z: operator_norm(jnp.einsum("m,mhd->hd", z, teacher.theta)))(latent)
    return latent / norms[:, None]


class AffineMap(NamedTuple):
    """x ↦ x weights + offset."""

    weights: np.ndarray
    offset: np.ndarray

    def __call__(self, x: ArrayLike) -> np.ndarray:
        return np.asarray(x, np.float64) @ self.weights + self.offset


def fit_map(v: ArrayLike, inferred: ArrayLike) -> AffineMap:
    """ẑ ≈ v A + b, by least squares. The offset is free: a student's own zero need not be the teacher's."""
    inputs, targets = np.asarray(v, np.float64), np.asarray(inferred, np.float64)
    weights = np.linalg.lstsq(np.column_stack([inputs, np.ones(len(inputs))]), targets, rcond=None)[0]
    return AffineMap(weights[:-1], weights[-1])


def recover_modules(
    model: Any,
    teacher: Teacher,
    v: Float[Array, "E M"],
    inferred: Float[Array, "E latent"],
    x: Float[Array, "inputs d"],
) -> Recovery:
    """v and ẑ of in-distribution tasks; the inputs on which functions are compared. The model has `execute(z, x)`."""
    v64, z64 = np.asarray(v, np.float64), np.asarray(inferred, np.float64)
    to_code, to_v = fit_map(v64, z64), fit_map(z64, v64)
    map_r2 = 1 - np.sum((z64 - to_code(v64)) ** 2) / np.sum((z64 - z64.mean(axis=0)) ** 2)

    def recovered(mask: Mask) -> Recovered:
        at = scaled_latent(teacher, jnp.asarray([mask], jnp.float32))[0]
        truth = _teach(teacher, at, x)
        mapped = to_code(at)
        student = execute_many(model, jnp.tile(jnp.asarray(mapped, jnp.float32), (len(x), 1)), x)
        perfect = _teach(teacher, jnp.asarray(to_v(mapped), jnp.float32), x)
        return Recovered(mask, explained(student, truth), explained(perfect, truth))

    num_modules = len(teacher.theta)
    single = [recovered(mask) for mask in k_hot_masks(num_modules, 1)]
    pairs = [recovered(mask) for mask in k_hot_masks(num_modules, 2)] if num_modules > 1 else []
    return Recovery(float(map_r2), single, pairs)


@eqx.filter_jit
def execute_many(model: Any, z: Float[Array, "E latent"], x: Float[Array, "E d"]) -> Float[Array, "E"]:
    """Each latent executed on its input."""
    return jax.vmap(model.execute)(z, x)


@eqx.filter_jit
def _teach(teacher: Teacher, v: Float[Array, "M"], x: Float[Array, "inputs d"]) -> Float[Array, "inputs"]:
    return task_network(jnp.einsum("m,mhd->hd", v, teacher.theta), teacher.a, x)


def explained(found: ArrayLike, truth: ArrayLike) -> float:
    """The share of the truth's variance that is explained."""
    f, t = np.asarray(found, np.float64), np.asarray(truth, np.float64)
    return float(1 - np.sum((t - f) ** 2) / np.sum((t - t.mean()) ** 2))
