"""The exceptions whose messages are written for the user."""

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
        super().__init__(f"{field} = {shown}: {expected}")


class InUse(InputError):
    """Another process is using the directory. The same command may succeed later."""


def suggestion(word: str, candidates: list[str]) -> str:
    """' (did you mean …?)' if a candidate is close to the word, otherwise the empty string."""
    close = get_close_matches(word, candidates, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


class Failed(Exception):
    """The command finished, but some of its work failed. The message lists what failed."""
