"""Checks of single fields. Each error names the field, its value and what would be right."""

import re
from collections.abc import Sequence
from math import isfinite
from typing import Any

from recombine.errors import InputError, suggestion

LARGEST_SIZE = 2**16
LARGEST_COUNT = 2**31 - 1  # steps and episodes are counted in 32 bits on the device
LARGEST_NUMBER = 1e30  # beyond it float32 overflows in the first product
MOST_NUMBERS = 250_000_000  # a gigabyte of float32
NUM_SEEDS = 2**32  # JAX silently drops the upper half of a longer seed: 0 and 2³² would draw the same numbers
THREADS = "RECOMBINE_THREADS"  # set in the environment by `prepare`: the number of threads of this process


def check_size(name: str, value: Any, least: int = 1, most: int = LARGEST_SIZE) -> None:
    if type(value) is not int or not least <= value <= most:
        raise InputError(name, value, f"an integer from {least} to {most}")


def check_number(
    name: str,
    value: Any,
    least: float | None = None,
    above: float | None = None,
    most: float = LARGEST_NUMBER,
) -> None:
    ok = (
        type(value) in (int, float)
        and value <= most  # false for NaN, and for infinity
        and (least is None or value >= least)
        and (above is None or value > above)
    )
    if not ok:
        low = f"at least {least:g}" if least is not None else f"above {above:g}"
        raise InputError(name, value, f"a number {low} and at most {most:g}")


def check_bool(name: str, value: Any) -> None:
    if type(value) is not bool:
        raise InputError(name, value, "true or false")


def check_choice(name: str, value: Any, *choices: str) -> None:
    if value not in choices:
        hint = suggestion(value, list(choices)) if isinstance(value, str) else ""
        raise InputError(name, value, f"one of {', '.join(choices)}{hint}")


def check_seed(name: str, value: Any) -> None:
    check_size(name, value, least=0, most=NUM_SEEDS - 1)


def check_class(field: str, kind: Any, *others: str) -> None:
    if not isinstance(kind, str) or not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", kind):
        raise InputError(field, kind, " or ".join([*others, "package.module:Class"]))


def check_options(field: str, pairs: Sequence[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    """The options of a user's class, as sorted pairs, so that a configuration is hashable."""
    options = dict(pairs)
    for name, value in options.items():
        if not isinstance(value, str | bool | int | float):
            raise InputError(f"{field}.{name}", value, "a string, a number, true or false")
        if isinstance(value, float) and not isfinite(value):
            raise InputError(f"{field}.{name}", value, "must be finite")
    return tuple(sorted(options.items()))
