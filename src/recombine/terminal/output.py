"""What commands print: results to stdout, notes and complaints to stderr."""

import json
import re
import sys
from typing import Any


def note(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def print_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def print_json(value: Any) -> None:
    """Plain data, or records; what is not a finite number becomes null."""
    from recombine.record.codec import plain

    text = json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)
    print_line(
        re.sub(r"\[[\d\s,]+\]", lambda row: " ".join(row[0].split()).replace("[ ", "[").replace(" ]", "]"), text)
    )


def complain(text: str) -> None:
    sys.stderr.write(f"recombine: {' '.join(text.split())}\n")
