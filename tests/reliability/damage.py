"""Damage to files: edits by hand, and every kind of broken file."""

import json
import os
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import tomli_w

EDITS = ("digit", "bit", "truncate", "empty", "delete", "rows swapped")


def edit_file(path: Path, how: str, place: float) -> bool:
    """Change a file, if it is there; whether anything changed."""
    if not path.is_file():
        return False
    data = path.read_bytes()
    at = int(place * len(data))
    changed = bytearray(data)
    match how:
        case "digit":  # a number is another number: what an edit by hand does
            digits = [i for i, byte in enumerate(data) if chr(byte).isdigit()]
            if digits:
                chosen = digits[int(place * len(digits))]
                changed[chosen] = ord("0") + (data[chosen] - ord("0") + 3) % 10
        case "bit" if data:
            changed[at] ^= 1 << at % 8
        case "truncate":
            changed = changed[:at]
        case "empty":
            changed = bytearray()
        case "delete":
            path.unlink()
            return True
        case "rows swapped":
            changed = bytearray(b"".join(sorted(data.splitlines(keepends=True), reverse=True)))
        case _:
            pass
    if changed == data:
        return False
    path.write_bytes(bytes(changed))
    return True


PLACEHOLDER = "@@@"
DEEP = 3_000  # Python's own parsers give up at a thousand levels

Place = tuple[Any, Any]
"""A table or a list, and the key or the index of one of its values."""


def places(value: Any) -> Iterator[Place]:
    """Every path in a document that leads to a value."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


def delete(rng: Random, document: Any) -> None:
    table, key = rng.choice(list(places(document)))
    del table[key]


def rename(rng: Random, document: Any) -> None:
    table, key = rng.choice([(table, key) for table, key in places(document) if isinstance(table, dict)])
    misspelt = key[:-1] if len(key) > 1 and rng.random() < 0.5 else f"{key}x"
    table[misspelt] = table.pop(key)


def replace_by(*values: Any) -> Callable[[Random, Any], None]:
    """Replace a value by one of another type."""

    def change(rng: Random, document: Any) -> None:
        table, key = rng.choice(list(places(document)))
        others = [value for value in values if _kind(value) != _kind(table[key])]
        table[key] = rng.choice(others or [PLACEHOLDER])

    return change


def _kind(value: Any) -> object:
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value)


def in_number(*values: Any) -> Callable[[Random, Any], None]:
    """Replace a number by one of `values`, such as a number that is too large for its type."""

    def change(rng: Random, document: Any) -> None:
        numbers = [(table, key) for table, key in places(document) if _kind(table[key]) == "number"]
        table, key = rng.choice(numbers or list(places(document)))
        table[key] = rng.choice(values)

    return change


def deepen(rng: Random, document: Any) -> None:
    table, key = rng.choice(list(places(document)))
    table[key] = PLACEHOLDER


CHANGES: dict[str, Callable[[Random, Any], None]] = {
    "deleted key": delete,
    "renamed key": rename,
    "wrong type": replace_by("text", [], {}, True, [1, "two"], {"a": 1}, "\ud800", 3, -1.5),
    "null": replace_by(None),
    "not a number": in_number(float("nan"), float("inf"), -float("inf")),
    "huge number": in_number(10**400, 2**64, -(2**63) - 1, 1e308, -1e308),
    "deep nesting": deepen,
}
"""Changes to what a JSON, JSONL or TOML file says."""


def change(path: Path, how: str, rng: Random) -> None:
    """One change in a file of JSON or TOML, or in one row of a file of rows."""
    text = path.read_text()
    if path.suffix == ".toml":
        document = tomllib.loads(text)
        CHANGES[how](rng, document)
        text = tomli_w.dumps(_without_null(document))
    elif path.suffix == ".jsonl":
        rows = text.splitlines()
        at = rng.randrange(len(rows))
        row = json.loads(rows[at])
        CHANGES[how](rng, row)
        rows[at] = json.dumps(row)
        text = "".join(f"{row}\n" for row in rows)
    else:
        document = json.loads(text)
        CHANGES[how](rng, document)
        text = json.dumps(document, indent=1)
    if how == "deep nesting":
        text = text.replace(f'"{PLACEHOLDER}"', "[" * DEEP + "]" * DEEP)
    path.write_bytes(text.encode(errors="surrogatepass"))


def _without_null(value: Any) -> Any:
    """Leave out keys that TOML cannot hold: null, and text that is not valid UTF-8."""
    if isinstance(value, dict):
        return {k: _without_null(v) for k, v in value.items() if v is not None and v != "\ud800"}
    return [_without_null(v) for v in value if v is not None] if isinstance(value, list) else value


def truncate(path: Path, rng: Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data))])


def garble(path: Path, rng: Random) -> None:
    """Put bytes in the middle that are not valid UTF-8."""
    data = path.read_bytes()
    at = rng.randrange(len(data))
    path.write_bytes(data[:at] + rng.choice([b"\xff\xfe", b"\0", b"\xed\xa0\x80", b"\xc3"]) + data[at:])


def empty(path: Path, rng: Random) -> None:
    path.write_bytes(b"")


def lose(path: Path, rng: Random) -> None:
    path.unlink()


def make_directory(path: Path, rng: Random) -> None:
    path.unlink()
    path.mkdir()


def make_link(path: Path, rng: Random) -> None:
    """Replace the file by a link to a copy elsewhere."""
    elsewhere = path.with_name(f"elsewhere-{path.name}")
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def make_pipe(path: Path, rng: Random) -> None:
    """Replace the file by a named pipe, which blocks every reader."""
    path.unlink()
    os.mkfifo(path)


REPLACEMENTS: dict[str, Callable[[Path, Random], None]] = {
    "truncated": truncate,
    "not UTF-8": garble,
    "empty": empty,
    "missing": lose,
    "directory": make_directory,
    "link": make_link,
    "pipe": make_pipe,
}
"""What can be in a file's place."""

KINDS = (*CHANGES, *REPLACEMENTS)


def damage(path: Path, kind: str, rng: Random) -> None:
    if kind in CHANGES:
        change(path, kind, rng)
    else:
        REPLACEMENTS[kind](path, rng)
