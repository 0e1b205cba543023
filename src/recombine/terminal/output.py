"""What commands print: results to stdout, notes and complaints to stderr."""

import json
import re
import sys
from typing import Any

LONGEST_LINE = 1200  # characters


def note(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def print_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def print_json(value: Any) -> None:
    """Plain data, or records; what is not a finite number becomes null."""
    from recombine.record.codec import plain

    print_line(_escaped(_indented(plain(value))))


def _escaped(text: str) -> str:
    """JSON, where the terminal cannot show it, with JSON's own escapes: what reads it gets the same strings."""
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        return re.sub(r"[^\x00-\x7f]+", lambda found: json.dumps(found[0])[1:-1], text)
    return text


def _indented(value: Any, indent: str = "") -> str:
    """JSON with a line for each entry, but for lists of whole numbers (masks, say), which stand in one line."""
    inner = f"{indent}  "
    match value:
        case dict() if value:
            lines = [f"{_key(name)}: {_indented(entry, inner)}" for name, entry in value.items()]
            start, end = "{", "}"
        case list() if not all(type(entry) is int for entry in value):
            lines = [_indented(entry, inner) for entry in value]
            start, end = "[", "]"
        case _:
            return json.dumps(value, ensure_ascii=False, allow_nan=False)
    return f"{start}\n{inner}" + f",\n{inner}".join(lines) + f"\n{indent}{end}"


def _key(name: Any) -> str:
    """JSON's keys are strings."""
    return json.dumps(name if isinstance(name, str) else json.dumps(name), ensure_ascii=False)


def complain(text: str) -> None:
    """One line of sensible length. What was given may be in it, and may hold anything: nothing in it is obeyed."""
    line = "".join(one if one.isprintable() else repr(one)[1:-1] for one in " ".join(text.split()))
    if len(line) > LONGEST_LINE:
        line = f"{line[: LONGEST_LINE * 3 // 4]} … {line[-LONGEST_LINE // 4 :]}"  # the advice is at the end
    sys.stderr.write(f"recombine: {line}\n")
