"""A class of the user's in a configuration: its name, `package.module:Class`, and its options."""

import re
from collections.abc import Sequence
from math import isfinite
from typing import Any

from recombine.errors import InputError


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
