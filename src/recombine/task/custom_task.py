"""Custom tasks: any importable class of the user's, built as `Class(task, key=key)`, with a method `label(z, x)`.

A class is imported only if the command line of this invocation names it (`import_task`), as custom models are.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from recombine.config.task import InputDistribution, TaskConfig
from recombine.errors import InputError
from recombine.numerics import exact_jit
from recombine.support.support import Support
from recombine.task.episode import sample_input
from recombine.task.interface import Teacher
from recombine.user_class import import_class, short_error

READOUT = "with_readout"  # the optional method that the split `control_modules` needs

_imported: dict[str, Callable[..., Any]] = {}


class CustomTeacher(Teacher):
    """A teacher of the user's class, and the task that it was drawn for."""

    own: Any
    task: TaskConfig = eqx.field(static=True)
    label_noise: float = eqx.field(static=True)
    input_distribution: InputDistribution = eqx.field(static=True)

    @property
    def num_modules(self) -> int:
        return self.task.num_modules

    @property
    def input_dim(self) -> int:
        return self.task.input_dim

    @property
    def hidden_dim(self) -> int:
        return self.task.hidden_dim

    @property
    def label_shape(self) -> tuple[int, ...]:
        return self.task.label_shape

    def label(self, z: Float[Array, "M"], x: Float[Array, "... d"]) -> Float[Array, "..."]:
        return self.own.label(z, x.reshape(-1, x.shape[-1])).reshape(*x.shape[:-1], *self.label_shape)

    def redraw(self, key: Key[Array, ""]) -> "CustomTeacher":
        return init_custom(key, self.task)

    def with_readout(self, own: Teacher, keep: bool | Bool[Array, ""]) -> "CustomTeacher":
        assert isinstance(own, CustomTeacher)
        if not hasattr(self.own, READOUT):
            return self
        kept = getattr(self.own, READOUT)(own.own)
        chosen = jax.tree.map(lambda a, b: jnp.where(keep, a, b) if eqx.is_array(a) else a, kept, self.own)
        return eqx.tree_at(lambda teacher: teacher.own, self, chosen)


def import_task(kind: str) -> str:
    """Import `package.module:Class` from the current directory, or else from wherever Python finds it."""
    task = TaskConfig(kind=kind)
    _imported[kind] = import_class("task", kind, task)
    return kind


def init_custom(key: Key[Array, ""], task: TaskConfig) -> CustomTeacher:
    """Draw a teacher. The class is not told which masks are trained on and which are held out."""
    if task.kind not in _imported:
        expected = f"a class is imported only where the command names it: --task {task.kind}"
        raise InputError("task.kind", task.kind, expected)
    task = replace(task, support=Support("", ((1,) * task.num_modules,), ()))
    own = _imported[task.kind](task, key=key)
    return CustomTeacher(own=own, task=task, label_noise=task.label_noise, input_distribution=task.input_distribution)


draw_custom = exact_jit(init_custom)


def keeps_readout(task: TaskConfig) -> bool:
    """Whether fresh modules can be drawn for the same readout: otherwise there is no split `control_modules`."""
    return ":" not in task.kind or hasattr(_imported.get(task.kind), READOUT)


def check_custom_task(task: TaskConfig) -> None:
    """Refuse a class that does not label inputs as a teacher must, before anything is trained."""
    kind, where = task.kind, f"{task.kind} must be built by Class(task, key=key) and have label(z, x)"
    try:
        teacher = draw_custom(jax.random.key(0), task)
        jax.clear_caches()  # the class is traced again: what its Python code draws would differ
        again = draw_custom(jax.random.key(0), task)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError("task", kind, f"cannot be built ({short_error(error)}); {where}") from error
    own = teacher.own
    if not isinstance(own, eqx.Module):
        raise InputError("task", kind, f"builds a {type(own).__name__}, not an equinox.Module")
    _check_arrays(kind, own)
    if not eqx.tree_equal(own, again.own):
        raise InputError("task", kind, "built twice with the same key, it gives two teachers; draw from the key alone")
    masks = jnp.eye(task.num_modules, dtype=jnp.float32)
    x = sample_input(jax.random.key(1), (8, task.input_dim), task.input_distribution)
    try:
        y = _own_labels(own, masks[0], x)
    except (Exception, SystemExit) as error:
        raise InputError("task", kind, f"label(z, x) cannot be called ({short_error(error)}); {where}") from error
    expected = (8, *task.label_shape)
    if getattr(y, "shape", None) != expected or y.dtype != jnp.float32:
        found = f"{getattr(y, 'dtype', type(y).__name__)}{list(getattr(y, 'shape', ()))}"
        raise InputError("task", kind, f"label(z, x) gives {found} for 8 inputs; it must be float32{list(expected)}")
    labels = np.asarray(_labels(teacher, masks, x))
    if not np.isfinite(labels).all():
        raise InputError("task", kind, "label(z, x) gives numbers that are not finite")
    if (np.ptp(labels, axis=1).max(axis=0) == 0).any():  # of any output: R² would not be defined for it
        raise InputError("task", kind, "label(z, x) does not depend on x")
    if np.ptp(labels, axis=0).max() == 0 and task.num_modules > 1:
        raise InputError("task", kind, "label(z, x) does not depend on the latent z")
    if not np.allclose(_labels_alone(teacher, masks[0], x), labels[0], rtol=1e-3, atol=1e-5):
        raise InputError("task", kind, "label(z, x) gives an input a label that depends on the other inputs")
    try:
        slope = _derivative(teacher, jnp.ones(task.num_modules, jnp.float32), x)
    except Exception as error:
        raise InputError("task", kind, f"label(z, x) cannot be differentiated ({short_error(error)})") from error
    if not np.isfinite(slope).all():
        raise InputError("task", kind, "the derivative of label(z, x) by z is not finite")
    if hasattr(own, READOUT):
        _check_readout(kind, teacher, task)


def _check_arrays(kind: str, own: Any) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(own):
        name = jax.tree_util.keystr(path)
        if eqx.is_inexact_array(leaf) and leaf.dtype != jnp.float32:
            raise InputError("task", kind, f"{name} is {leaf.dtype}, not float32")
        if eqx.is_inexact_array(leaf) and not np.isfinite(leaf).all():
            raise InputError("task", kind, f"{name} has entries that are not finite")
        if not eqx.is_array(leaf):
            raise InputError("task", kind, f"{name} is a {type(leaf).__name__}; make it an array or a static field")


def _check_readout(kind: str, teacher: CustomTeacher, task: TaskConfig) -> None:
    try:
        fresh = draw_custom(jax.random.key(2), task)
        kept = fresh.with_readout(teacher, True)
        same = jax.tree.structure(kept) == jax.tree.structure(fresh)
    except Exception as error:
        raise InputError("task", kind, f"{READOUT}(other) cannot be called ({short_error(error)})") from error
    if not same:
        raise InputError("task", kind, f"{READOUT}(other) must return a teacher of the same form")


@exact_jit
def _own_labels(own: Any, z: Float[Array, "M"], x: Float[Array, "n d"]) -> Any:
    return own.label(z, x)


@exact_jit
def _labels(teacher: Teacher, z: Float[Array, "K M"], x: Float[Array, "n d"]) -> Float[Array, "K n *out"]:
    return jax.vmap(lambda z: teacher.label(z, x))(z)


@exact_jit
def _labels_alone(teacher: Teacher, z: Float[Array, "M"], x: Float[Array, "n d"]) -> Float[Array, "n *out"]:
    return jax.vmap(lambda x: teacher.label(z, x))(x)


@exact_jit
def _derivative(teacher: Teacher, z: Float[Array, "M"], x: Float[Array, "n d"]) -> Float[Array, "n *out M"]:
    return jax.jacfwd(lambda z: teacher.label(z, x))(z)
