"""Exact float32 and reproducible random numbers, for every program that Recombine compiles.

On accelerators a product of float32 matrices is by default not one: labels would be noisy, and the fast path another
model than the plain one. And how a key becomes random bits is a setting of JAX that an environment variable can change:
the same seed would draw another teacher and other data.

Nothing is set globally. `exact_jit` compiles a function under both settings, and every room that multiplies or draws
uses it. Passes in bfloat16 are the exception, on demand (`model/forward.py`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

import equinox as eqx
import jax

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def exactly() -> Iterator[None]:
    """Inside, what is traced multiplies float32 as float32, and a key gives the same random bits everywhere."""
    with jax.default_matmul_precision("highest"), jax.threefry_partitionable(True):
        yield


def exact_jit(function: Callable[P, R]) -> Callable[P, R]:
    """`equinox.filter_jit`, whose program is traced under `exactly`."""
    compiled = eqx.filter_jit(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with exactly():
            return compiled(*args, **kwargs)

    return call
