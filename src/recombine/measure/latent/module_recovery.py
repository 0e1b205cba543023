"""Module recovery: has a model with a latent learned the teacher's modules?

The teacher divides W(z) by its norm, so the quantity to infer is the scaled latent v = z / ‖W(z)‖. An affine map A from
v to the inferred latent ẑ is fitted in distribution. If the model has learned the modules, then executing A v equals
the teacher's task network at v for every v, including single modules, which it never saw alone. Functions are compared,
not hidden units: the model may have more units than the teacher, and any basis of them.

The ceiling is the R² that perfect modules would reach with this model's inference. Latents inferred from a short
context shrink towards the mean: C, the regression of v on ẑ, inverts A only as far as ẑ determines v. So the ceiling
compares the true modules at C A v with the true modules at v.
"""

from collections.abc import Collection
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from recombine.measure.evaluated import EvaluatedModel
from recombine.measure.r2 import explained
from recombine.model.interface import LatentModel
from recombine.numerics import exact_jit
from recombine.record.codec import Count, MaskName, Real, Record
from recombine.stream import Stream, stream_key
from recombine.support.masks import Mask, active_modules, format_mask, k_hot_masks
from recombine.task.episode import sample_input
from recombine.task.teacher import Teacher

NUM_INPUTS = 4_000  # the number of inputs on which functions are compared


class RecoveredPair(Record, frozen=True):
    """The share of the variance of the teacher's network at a mask that the model's explains, and the ceiling."""

    mask: MaskName
    trained: bool
    r2: Real | None
    ceiling: Real | None


class RecoveredModule(Record, frozen=True):
    """The same for a single module, numbered from 1."""

    module: Count
    mask: MaskName
    trained: bool
    r2: Real | None
    ceiling: Real | None


class Recovery(Record, frozen=True):
    """R² of the affine map itself in distribution, and the recovery of every single module and of every pair."""

    map_r2: Real | None
    single: tuple[RecoveredModule, ...]
    pairs: tuple[RecoveredPair, ...]


def measure_modules(evaluated: EvaluatedModel) -> Recovery | None:
    """None for a model that cannot execute a latent."""
    model, inferred = evaluated.latent_model, evaluated.fit_output.latent
    if model is None or inferred is None:
        return None
    config, teacher = evaluated.config, evaluated.teacher
    v = scaled_latent(teacher, evaluated.fit_episodes.latent)
    task, key = config.task, stream_key(config.seed, Stream.modules)
    x = sample_input(key, (NUM_INPUTS, task.input_dim), task.input_distribution)
    return recover_modules(model, teacher, v, inferred, x, task.support.masks)


@exact_jit
def scaled_latent(teacher: Teacher, latent: Float[Array, "E M"]) -> Float[Array, "E M"]:
    """v = z / ‖W(z)‖: the weights of the teacher's task network are linear in v."""
    return jax.vmap(teacher.scaled)(latent)


class AffineMap(NamedTuple):
    """x ↦ x weights + offset."""

    weights: np.ndarray
    offset: np.ndarray

    def __call__(self, x: ArrayLike) -> np.ndarray:
        return np.asarray(x, np.float64) @ self.weights + self.offset


def fit_map(v: ArrayLike, inferred: ArrayLike) -> AffineMap:
    """ẑ ≈ v A + b, by least squares. The offset b is needed because the two latents may have different origins."""
    inputs, targets = np.asarray(v, np.float64), np.asarray(inferred, np.float64)
    weights = np.linalg.lstsq(np.column_stack([inputs, np.ones(len(inputs))]), targets, rcond=None)[0]
    return AffineMap(weights[:-1], weights[-1])


def recover_modules(
    model: LatentModel,
    teacher: Teacher,
    v: Float[Array, "E M"],
    inferred: Float[Array, "E latent"],
    x: Float[Array, "inputs d"],
    trained: Collection[Mask] = (),
) -> Recovery:
    """Fit the maps on `v` and `inferred` (in-distribution tasks), and compare model and teacher on the inputs `x`."""
    v64, z64 = np.asarray(v, np.float64), np.asarray(inferred, np.float64)
    to_inferred, to_v = fit_map(v64, z64), fit_map(z64, v64)

    def recovered(mask: Mask) -> RecoveredPair:
        at = scaled_latent(teacher, jnp.asarray([mask], jnp.float32))[0]
        truth = _label_inputs(teacher, at, x)
        mapped = to_inferred(at)
        student = execute_many(model, jnp.tile(jnp.asarray(mapped, jnp.float32), (len(x), 1)), x)
        perfect = _label_inputs(teacher, jnp.asarray(to_v(mapped), jnp.float32), x)
        return RecoveredPair(format_mask(mask), mask in trained, explained(student, truth), explained(perfect, truth))

    num_modules = teacher.num_modules
    single = []
    for mask in k_hot_masks(num_modules, 1):
        alone, (module,) = recovered(mask), active_modules(mask)
        single.append(RecoveredModule(module, alone.mask, alone.trained, alone.r2, alone.ceiling))
    pairs = tuple(recovered(mask) for mask in k_hot_masks(num_modules, 2)) if num_modules > 1 else ()
    return Recovery(explained(to_inferred(v64), z64), tuple(single), pairs)


@exact_jit
def execute_many(model: LatentModel, z: Float[Array, "E latent"], x: Float[Array, "E d"]) -> Float[Array, "E *out"]:
    """Execute each latent on its input."""
    return jax.vmap(model.execute)(z, x)


@exact_jit
def _label_inputs(teacher: Teacher, v: Float[Array, "M"], x: Float[Array, "inputs d"]) -> Float[Array, "inputs *out"]:
    return teacher.label_scaled(v, x)
