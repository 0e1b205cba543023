"""Converts records to and from JSON: the one place where untyped data becomes typed.

Every JSON file in a run directory is read by `decode` and written by `encode`. A value of the wrong type raises an
error that names its place (`$.ood.r2`); it is never silently accepted.

The types of numbers and names have bounds that every real measurement satisfies. Values outside them are refused when a
file is read, so that later no sum overflows, no logarithm fails, and no impossible name is looked up.
"""

import json
from math import isfinite
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from recombine.checks import LARGEST_COUNT, NUM_SEEDS

T = TypeVar("T")
LONGEST_SHOWN = 40  # characters of a text in a record's repr


class Record(msgspec.Struct, frozen=True):
    """A frozen record. Its fields are the keys of its JSON object, in the same order."""

    def __repr__(self) -> str:
        """Its fields, each in a few characters: it may hold thousands of numbers. `plain` has all of them."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        shown = (f"{name}={_in_short(value)}" for name, value in values.items() if value is not None)
        return f"{type(self).__name__}({', '.join(shown)})"


class BadRecord(ValueError):
    """The data does not have the form of the expected record."""


def decode(data: bytes | str, kind: type[T]) -> T:
    """The record in a JSON text. Unknown keys are ignored."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BadRecord(str(error) or type(error).__name__) from error


def convert(value: Any, kind: type[T]) -> T:
    """The record in plain data (dictionaries, lists, numbers)."""
    try:
        return msgspec.convert(value, kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadRecord(str(error) or type(error).__name__) from error


def plain(record: Any) -> Any:
    """The record as dictionaries, lists and numbers. JSON has no NaN and no infinity: they become None."""
    return _finite(msgspec.to_builtins(record))


def storable(record: Record) -> Any:
    """Like `plain`, but raises an error if the result could not be read back from a file.

    That happens where a number is not finite and its field does not allow None.
    """
    content = plain(record)
    try:
        convert(content, type(record))
    except BadRecord as error:
        raise ArithmeticError(f"a number that is not finite cannot be stored ({error})") from error
    return content


def encode(record: Any, indent: int | None = None) -> str:
    """The record as a JSON text."""
    return json.dumps(plain(record), indent=indent, allow_nan=False)


def _in_short(value: Any) -> str:
    match value:
        case float():
            return f"{value:.4g}"
        case str() if len(value) > LONGEST_SHOWN:
            return repr(f"{value[:LONGEST_SHOWN]}…")
        case Record():
            names = value.__struct_fields__
            first = [f"{name}={_in_short(getattr(value, name))}" for name in names[:1]]
            return f"{type(value).__name__}({', '.join([*first, *(['…'] if names[1:] else [])])})"
        case dict() | list() | tuple():
            return f"<{len(value)} {'entry' if len(value) == 1 else 'entries'}>"
    return repr(value)


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if isfinite(value) else None
        case dict():
            return {name: _finite(entry) for name, entry in value.items()}
        case list() | tuple():
            return [_finite(entry) for entry in value]
    return value


LARGEST = 1e100  # squared errors of float32 numbers stay far below

Real = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Positive = Annotated[float, Meta(ge=0, le=LARGEST)]
Count = Annotated[int, Meta(ge=0, le=LARGEST_COUNT)]
"""Steps, episodes, devices."""
Seed = Annotated[int, Meta(ge=0, lt=NUM_SEEDS)]
MaskName = Annotated[str, Meta(pattern=r"^[01]+\Z")]
"""A mask as text, such as `110000`."""
NumModules = Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,3}\Z")]
"""A number of active modules as a JSON key, such as `2`."""
