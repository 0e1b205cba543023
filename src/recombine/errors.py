"""The exceptions whose messages are written for the user, and the words for errors of the machine."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any


class InputError(ValueError):
    """The user's input cannot be used. The message names the field, its value, and what would be right."""

    def __init__(self, field: str, value: Any, expected: str):
        self.field, self.value, self.expected = field, value, expected
        try:
            shown = " ".join(repr(value).split())
        except ValueError:  # Python does not print integers of more than 4300 digits
            shown = "an integer of thousands of digits"
        if len(shown) > 80:
            shown = f"{shown[:77]}..."
        super().__init__(_one_line(f"{field} = {shown}: {expected}"))


def _one_line(text: str) -> str:
    """The text as a terminal shows it: control characters, which the user's input may contain, are escaped."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


class InUse(InputError):
    """Another process is using the directory. The same command may succeed later."""


def suggestion(word: str, candidates: list[str]) -> str:
    """' (did you mean …?)' if a candidate is close to the word, otherwise the empty string."""
    close = get_close_matches(word, candidates, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


class Failed(Exception):
    """The command finished, but some of its work failed. The message lists what failed."""


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: Python's, the system's, or JAX's (an error of its own, known by this word alone)."""
    no_memory = isinstance(error, OSError) and error.errno == errno.ENOMEM
    return no_memory or isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


@contextmanager
def memory_errors() -> Iterator[None]:
    """Turn JAX's own error for memory that ran out into Python's MemoryError."""
    try:
        yield
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        raise MemoryError(str(error)) from error


def describe(error: BaseException) -> str:
    """An error for people to read: which file, and what the system says of it; or that memory ran out."""
    if out_of_memory(error):
        said = str(error).partition("\n")[0]
        return f"out of memory{f': {said}' if said else ''} (smaller sizes, or fewer runs at a time, need less)"
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__
