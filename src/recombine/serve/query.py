"""Reads a question to the explorer from the query of its address."""

from collections.abc import Callable
from typing import cast, get_args

from starlette.datastructures import QueryParams

from recombine.config.schema import Config
from recombine.errors import InputError
from recombine.serve.explorer.exchange import TRUE, ComposedTask, Explicit, Inputs, Latent, Start
from recombine.serve.run_summary import SeenRun


def asked_task(given: QueryParams) -> ComposedTask:
    return ComposedTask(
        weights=_numbers(given.get("weights", ""), "weights"),
        length=integer(given.get("length", ""), "length"),
        draw=integer(given.get("draw", "0"), "draw"),
        fresh=integer(given["fresh"], "fresh") if "fresh" in given else None,
        teacher_of=integer(given.get("teacher_of", "0"), "teacher_of"),
        direction=integer(given.get("direction", "0"), "direction"),
    )


def asked_inputs(given: QueryParams) -> Inputs:
    fresh = integer(given["fresh"], "fresh") if "fresh" in given else None
    return Inputs(integer(given.get("draw", "0"), "draw"), fresh)


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


def asked_classes(
    option: str, runs: list[SeenRun], custom: Callable[[Config], str | None], named: tuple[str | None, ...]
) -> tuple[str, ...]:
    """The custom classes of runs. A run directory alone never causes an import: the command must name the class."""
    found = []
    for run in runs:
        kind = None if run.config is None else custom(run.config)
        if kind is not None and kind not in named:
            raise InputError(
                "run", run.name, f"its {option} is {kind}: serve with --{option} {kind} to have it imported"
            )
        found += [kind] if kind is not None else []
    return tuple(found)
