"""Converts records to and from JSON: the one place where untyped data becomes typed.

Every JSON file in a run directory is read by `decode` and written by `encode`. A value of the wrong type raises an
error that names its place (`$.ood.r2`); it is never silently accepted.
"""

import json
from math import isfinite
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class Record(msgspec.Struct, frozen=True):
    """A frozen record. Its fields are the keys of its JSON object, in the same order."""


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


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if isfinite(value) else None
        case dict():
            return {name: _finite(entry) for name, entry in value.items()}
        case list() | tuple():
            return [_finite(entry) for entry in value]
    return value
