"""What commands print: results to stdout, notes and complaints to stderr."""

import json
import re
import sys
from math import isfinite
from typing import Any


def note(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def print_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def print_json(value: Any) -> None:
    text = json.dumps(_without_nan(value), indent=2, ensure_ascii=False, allow_nan=False)
    print_line(
        re.sub(r"\[[\d\s,]+\]", lambda row: " ".join(row[0].split()).replace("[ ", "[").replace(" ]", "]"), text)
    )


def _without_nan(value: Any) -> Any:
    """JSON has no word for what is not a finite number, but null."""
    match value:
        case dict():
            return {name: _without_nan(entry) for name, entry in value.items()}
        case float() if not isfinite(value):
            return None
        case _:
            return value


def complain(text: str) -> None:
    sys.stderr.write(f"recombine: {' '.join(text.split())}\n")
