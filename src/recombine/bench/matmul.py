"""The limits of the machine: how fast NumPy and JAX multiply matrices.

Each limit takes part in the race like a contender. Its steps are products of float32 matrices, which are complete when
a call returns.
"""

import numpy as np

from recombine.bench.setting import MatmulSetting, Stepper

__all__ = ["NUMPY_SIZE", "REQUIRES", "make_stepper"]

REQUIRES: tuple[str, ...] = ("numpy",)

NUMPY_SIZE = 2048


def make_stepper(setting: MatmulSetting) -> Stepper:
    random = np.random.default_rng(0)
    X = random.standard_normal((setting.rows, setting.inner), np.float32)
    # The rows of V are orthonormal, so that V Vᵀ = 1: however often it is applied, the numbers stay as they are.
    V = np.linalg.qr(random.standard_normal((setting.columns, setting.inner)))[0].T.astype(np.float32)
    V, V_transposed = np.ascontiguousarray(V), np.ascontiguousarray(V.T)
    if setting.library == "jax":
        return _jax_stepper(setting, X, V, V_transposed)
    wide, narrow = np.empty((setting.rows, setting.columns), np.float32), X.copy()

    def run(num_steps: int) -> float:
        for _ in range(num_steps * setting.products):
            np.matmul(narrow, V, out=wide)
            np.matmul(wide, V_transposed, out=narrow)
        return float(narrow[0, 0])

    return run


def _jax_stepper(setting: MatmulSetting, X: np.ndarray, V: np.ndarray, V_transposed: np.ndarray) -> Stepper:
    import jax
    import jax.numpy as jnp

    @jax.jit
    def multiply(X: jax.Array, V: jax.Array, V_transposed: jax.Array, count: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, count, lambda _, X: (X @ V) @ V_transposed, X)

    arrays = tuple(map(jnp.asarray, (X, V, V_transposed)))

    def run(num_steps: int) -> float:
        return float(multiply(*arrays, jnp.asarray(num_steps * setting.products))[0, 0])

    return run
