"""Exact float32 and reproducible random numbers, for every program that Recombine compiles.

Two of JAX's defaults are not safe here. On accelerators, float32 matrices are multiplied in a lower precision: labels
would be noisy, and the fast path would differ from the plain one. And an environment variable can change how a key
becomes random bits: the same seed would draw another teacher and other data.

No global setting is changed. `exact_jit` compiles a function with both settings fixed; every room that multiplies
matrices or draws random numbers uses it. The only exception is training in bfloat16, on request (`model/forward.py`).
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
    """Code traced inside multiplies float32 in full precision, and turns a key into the same random bits everywhere."""
    with jax.default_matmul_precision("highest"), jax.threefry_partitionable(True):
        yield


def exact_jit(function: Callable[P, R]) -> Callable[P, R]:
    """`equinox.filter_jit`, with the function traced inside `exactly`."""
    compiled = eqx.filter_jit(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with exactly():
            return compiled(*args, **kwargs)

    return call
