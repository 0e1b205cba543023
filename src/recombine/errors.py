"""The one exception that is the user's to read."""

from difflib import get_close_matches
from typing import Any


class InputError(ValueError):
    """Something the user gave cannot be used: which field, its value, and what would be right."""

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
    """Somebody else is at it: later it may not be so."""


def suggestion(word: str, candidates: list[str]) -> str:
    """' (did you mean …?)' where a candidate is close to the word, otherwise nothing."""
    close = get_close_matches(word, candidates, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


class Failed(Exception):
    """Something that was asked for did not succeed, as far as it was told at the time."""
