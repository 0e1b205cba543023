"""The teacher: the linear hypernetwork that turns a latent into a task.

Paper: Appendix C.1 (app:task_generation).
"""

from collections.abc import Sequence
from math import sqrt

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Key

from recombine.config.schema import Config
from recombine.errors import InputError
from recombine.numerics import exact_jit
from recombine.stream import Stream, stream_key
from recombine.support.masks import Mask, active_modules
from recombine.support.support import Support


class Teacher(eqx.Module):
    """The modules θ₁ … θ_M and the readout a that all tasks share."""

    theta: Float[Array, "M h d"]
    a: Float[Array, "h"]

    def mix(self, v: Float[Array, "M"]) -> Float[Array, "h d"]:
        """Σ_m v_m θ_m, not normalised."""
        return jnp.einsum("m,mhd->hd", v, self.theta)

    def task_weights(self, z: Float[Array, "M"]) -> Float[Array, "h d"]:
        """W(z) = Σ_m z_m θ_m, divided by its operator norm."""
        W = self.mix(z)
        return W / operator_norm(W)

    def label(self, z: Float[Array, "M"], x: Float[Array, "... d"]) -> Float[Array, "..."]:
        """y = aᵀ σ(W(z) x), with σ the GELU."""
        return task_network(self.task_weights(z), self.a, x)

    def label_scaled(self, v: Float[Array, "M"], x: Float[Array, "... d"]) -> Float[Array, "..."]:
        """The label for a scaled latent v = z / ‖Σ_m z_m θ_m‖. The weights of the task network are linear in v."""
        return task_network(self.mix(v), self.a, x)


def task_network(W: Float[Array, "h d"], a: Float[Array, "h"], x: Float[Array, "... d"]) -> Float[Array, "..."]:
    """g(x, W) = aᵀ σ(W x): one hidden layer, one output, no biases."""
    return jax.nn.gelu(x @ W.T, approximate=False) @ a


def operator_norm(W: Float[Array, "h d"]) -> Float[Array, ""]:
    """The largest singular value."""
    return jnp.linalg.norm(W, ord=2)


def init_teacher(key: Key[Array, ""], num_modules: int, input_dim: int, hidden_dim: int) -> Teacher:
    """θ and a have i.i.d. normal entries of standard deviation 1/√M and 1/√h, truncated at two standard deviations."""
    theta_key, a_key = jax.random.split(key)
    theta = jax.random.truncated_normal(theta_key, -2.0, 2.0, (num_modules, hidden_dim, input_dim), jnp.float32)
    a = jax.random.truncated_normal(a_key, -2.0, 2.0, (hidden_dim,), jnp.float32)
    return Teacher(theta / sqrt(num_modules), a / sqrt(hidden_dim))


def seed_teacher(seed: int, support: Support, input_dim: int, hidden_dim: int) -> Teacher:
    """The teacher of a seed."""
    return _jit_init_teacher(stream_key(seed, Stream.teacher), support.num_modules, input_dim, hidden_dim)


def config_teacher(config: Config) -> Teacher:
    """The teacher of a run."""
    task = config.task
    seed = config.seed if config.teacher_seed is None else config.teacher_seed
    return seed_teacher(seed, task.support, task.input_dim, task.hidden_dim)


def check_teacher(teacher: Teacher, masks: Sequence[Mask]) -> None:
    """Refuse a teacher that has non-finite entries, or for which all modules of some mask are 0.

    With all modules of a mask 0, every task of that mask would have W(z) = 0, which cannot be normalised. If any of
    them is not 0, W(z) = 0 has probability 0.
    """
    if isinstance(teacher.theta, Tracer):
        return
    for name, value in (("theta", teacher.theta), ("a", teacher.a)):
        bad = np.asarray(value)[~np.isfinite(value)]
        if bad.size:
            raise InputError(f"teacher.{name}", float(bad[0]), "must be finite everywhere")
    nonzero = np.abs(teacher.theta).max(axis=(1, 2)) > 0
    for mask in masks if not nonzero.all() else ():
        if not nonzero[np.flatnonzero(mask)].any():
            modules = ", ".join(map(str, active_modules(mask)))
            raise InputError("teacher.theta", 0.0, f"all modules of the mask ({modules}) are 0: W has operator norm 0")


_jit_init_teacher = exact_jit(init_teacher)
