"""The machine's own limit: how fast NumPy and JAX multiply matrices of float32.

Contenders like the others; their steps are products, whose results are at hand when a call returns.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from recombine.bench.peer.job import Stepper

__all__ = ["NUMPY_SIZE", "REQUIRES", "Job", "make_stepper"]

REQUIRES: tuple[str, ...] = ("numpy",)

NUMPY_SIZE = 2048


@dataclass(frozen=True)
class Job:
    """X (rows × inner) times V (inner × columns), times Vᵀ, `products` times over, makes a step."""

    library: Literal["numpy", "jax"]
    rows: int
    inner: int
    columns: int
    products: int  # of the two each

    @property
    def flops(self) -> int:
        """Of one step."""
        return self.products * 4 * self.rows * self.inner * self.columns


def make_stepper(job: Job) -> Stepper:
    random = np.random.default_rng(0)
    X = random.standard_normal((job.rows, job.inner), np.float32)
    # Rows at right angles and of length 1, so that V Vᵀ = 1: however often it is applied, the numbers stay as they are.
    V = np.linalg.qr(random.standard_normal((job.columns, job.inner)))[0].T.astype(np.float32)
    V, V_transposed = np.ascontiguousarray(V), np.ascontiguousarray(V.T)
    if job.library == "jax":
        return _jax_stepper(job, X, V, V_transposed)
    wide, narrow = np.empty((job.rows, job.columns), np.float32), X.copy()

    def run(num_steps: int) -> float:
        for _ in range(num_steps * job.products):
            np.matmul(narrow, V, out=wide)
            np.matmul(wide, V_transposed, out=narrow)
        return float(narrow[0, 0])

    return run


def _jax_stepper(job: Job, X: np.ndarray, V: np.ndarray, V_transposed: np.ndarray) -> Stepper:
    import jax
    import jax.numpy as jnp

    @jax.jit
    def multiply(X: jax.Array, V: jax.Array, V_transposed: jax.Array, count: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, count, lambda _, X: (X @ V) @ V_transposed, X)

    arrays = tuple(map(jnp.asarray, (X, V, V_transposed)))

    def run(num_steps: int) -> float:
        return float(multiply(*arrays, jnp.asarray(num_steps * job.products))[0, 0])

    return run
