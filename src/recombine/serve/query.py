"""Reads a question to the explorer from the query of its address."""

from typing import cast, get_args

from starlette.datastructures import QueryParams

from recombine.errors import InputError
from recombine.serve.explorer.exchange import TRUE, ComposedTask, Explicit, Latent, Start


def asked_task(given: QueryParams) -> ComposedTask:
    return ComposedTask(
        weights=_numbers(given.get("weights", ""), "weights"),
        length=integer(given.get("length", ""), "length"),
        draw=integer(given.get("draw", "0"), "draw"),
        fresh=integer(given["fresh"], "fresh") if "fresh" in given else None,
        teacher_of=integer(given.get("teacher_of", "0"), "teacher_of"),
        direction=integer(given.get("direction", "0"), "direction"),
    )


def asked_latent(given: QueryParams, name: str) -> Latent | None:
    """`true`, `own-3` or `zero-3` for three steps of explicit inference, or numbers."""
    text = given.get(name)
    if text is None:
        return None
    start, _, steps = text.partition("-")
    if start in get_args(Start):
        return Explicit(cast(Start, start), integer(steps, name))
    return TRUE if text == TRUE else _numbers(text, name)


def integer(text: str, name: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 12):
        raise InputError(name, text, "a whole number")
    return int(text)


def _numbers(text: str, name: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(name, text, "numbers, with commas between them") from error
