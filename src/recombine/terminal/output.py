"""Printing: results to stdout, notes and errors to stderr."""

import csv
import json
import re
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from recombine.run.process import take_stdout

if TYPE_CHECKING:
    from rich.console import Console

_apart: TextIO | None = None


def keep_results_apart() -> None:
    """In a process of our own: stdout is for results from here on, and what a user's model prints goes to stderr."""
    global _apart
    if _apart is None and sys.stdout and sys.stderr:  # either may be closed: `recombine … 2>&-`
        _apart = take_stdout(sys.stdout.encoding, sys.stdout.errors or "strict")


def results() -> TextIO:
    """Where results go."""
    return _apart or sys.stdout


def result_console(highlight: bool = True) -> "Console":
    """For tables of results."""
    from rich.console import Console

    return Console(file=results(), highlight=highlight)


LONGEST_LINE = 1200  # characters


def note(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def print_line(text: str) -> None:
    results().write(f"{text}\n")


def print_json(value: Any) -> None:
    """Print plain data or records as JSON. Numbers that are not finite become null."""
    from recombine.record.codec import plain

    print_line(_escaped(_indented(plain(value))))


def print_csv(rows: Iterable[Mapping[str, object]]) -> None:
    """Print rows as CSV, with a header. All rows have the same columns; nothing stands for None."""
    found = list(rows)
    writer = csv.DictWriter(results(), list(found[0]) if found else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)


def _escaped(text: str) -> str:
    """Write characters that the terminal cannot show as JSON escapes: a program that reads them gets the same text."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return re.sub(r"[^\x00-\x7f]+", lambda found: json.dumps(found[0])[1:-1], text)
    return text


def _indented(value: Any, indent: str = "") -> str:
    """JSON with one entry per line, except that a list of integers (such as a mask) stays on one line."""
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
    """A key as JSON; other types than strings are converted to strings."""
    return json.dumps(name if isinstance(name, str) else json.dumps(name), ensure_ascii=False)


def complain(text: str) -> None:
    """Print one line of limited length. It may quote the user's input, so control characters are escaped."""
    line = "".join(one if one.isprintable() else repr(one)[1:-1] for one in " ".join(text.split()))
    if len(line) > LONGEST_LINE:
        line = f"{line[: LONGEST_LINE * 3 // 4]} … {line[-LONGEST_LINE // 4 :]}"  # the advice is at the end
    sys.stderr.write(f"recombine: {line}\n")
