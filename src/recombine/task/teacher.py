"""The teacher: the linear hypernetwork that turns a latent into a task.

Paper: Appendix C.1 (app:task_generation).
"""

from math import sqrt

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from scipy.optimize import nnls

from recombine.errors import InputError
from recombine.task.mask import Mask, active_modules


class Teacher(eqx.Module):
    """The modules θ₁ … θ_M and the readout a that all tasks share."""

    theta: Float[Array, "M h d"]
    a: Float[Array, "h"]

    def task_weights(self, z: Float[Array, "M"]) -> Float[Array, "h d"]:
        """W(z) = Σ_m z_m θ_m, divided by its operator norm."""
        W = jnp.einsum("m,mhd->hd", z, self.theta)
        return W / operator_norm(W)

    def label(self, z: Float[Array, "M"], x: Float[Array, "... d"]) -> Float[Array, "..."]:
        """y = aᵀ σ(W(z) x), with σ the GELU."""
        return task_network(self.task_weights(z), self.a, x)


def task_network(W: Float[Array, "h d"], a: Float[Array, "h"], x: Float[Array, "... d"]) -> Float[Array, "..."]:
    """g(x, W) = aᵀ σ(W x): one hidden layer, one output, no biases."""
    return jax.nn.gelu(x @ W.T, approximate=False) @ a


def operator_norm(W: Float[Array, "h d"]) -> Float[Array, ""]:
    """The largest singular value."""
    return jnp.linalg.norm(W, ord=2)


def init_teacher(key: Key[Array, ""], num_modules: int, input_dim: int, hidden_dim: int) -> Teacher:
    """θ and a with i.i.d. entries from normals of standard deviation 1/√M and 1/√h, cut at two of them."""
    theta_key, a_key = jax.random.split(key)
    theta = jax.random.truncated_normal(theta_key, -2.0, 2.0, (num_modules, hidden_dim, input_dim))
    a = jax.random.truncated_normal(a_key, -2.0, 2.0, (hidden_dim,))
    return Teacher(theta / sqrt(num_modules), a / sqrt(hidden_dim))


def check_teacher(teacher: Teacher, masks: tuple[Mask, ...]) -> None:
    """Refuse a teacher whose W(z) could vanish, or be non-finite, for some task of these masks.

    Such a W has no direction to normalise to, and its labels would be NaN. Algorithm 1 gives weights z ≥ 0 that are
    not all zero, so what must not happen is Σ z_m θ_m = 0 for such a z: a small non-negative least squares.
    """
    for name, value in (("theta", teacher.theta), ("a", teacher.a)):
        bad = np.asarray(value)[~np.isfinite(value)]
        if bad.size:
            raise InputError(f"teacher.{name}", float(bad[0]), "must be finite everywhere")
    theta = np.asarray(teacher.theta, np.float64)
    for mask in masks:
        modules = theta[np.flatnonzero(mask)]
        scale = np.abs(modules).max()
        columns = modules.reshape(len(modules), -1).T / (scale or 1.0)
        sums_to_one = np.ones((1, len(modules)))
        _, distance = nnls(np.vstack([columns, sums_to_one]), np.append(np.zeros(len(columns)), 1.0))
        if distance < 1e-6:
            raise InputError(
                "teacher.theta",
                f"modules {', '.join(map(str, active_modules(mask)))}",
                "W(z) can have operator norm 0 for this mask; no mixture of its modules may vanish",
            )
