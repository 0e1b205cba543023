"""The width of tyro's help and of its complaints."""

import io
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TextIO

NARROWEST, WIDEST = 20, 10_000  # columns
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class _Help(io.StringIO):
    """What tyro prints for a terminal. tyro asks it for colours, and for the characters of the frames."""

    def __init__(self, terminal: TextIO):
        super().__init__()
        self.terminal = terminal

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.terminal.encoding

    def isatty(self) -> bool:
        return self.terminal.isatty()


@contextmanager
def fitting(arguments: list[str]) -> Iterator[None]:
    """Help as wide as the terminal, and complaints in a line each: their words must not be broken.

    Help needs some room: with less, tyro looks for a place to break a line for ever.
    """
    if {"--help", "-h"}.isdisjoint(arguments):
        with _columns(WIDEST):
            yield
        return
    width = max(NARROWEST, shutil.get_terminal_size().columns)
    terminal, help_text = sys.stdout, _Help(sys.stdout)
    try:
        with _columns(width), redirect_stdout(help_text):
            yield
    finally:
        terminal.write("".join(wrap(line, width) for line in help_text.getvalue().splitlines(keepends=True)))


@contextmanager
def _columns(width: int) -> Iterator[None]:
    """How wide tyro takes the terminal to be."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(width)
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


def wrap(line: str, width: int) -> str:
    """The line, broken between words where it is too long. tyro itself breaks no line of the usage and the description.

    Colours take no room.
    """
    lines = [""]
    for word in re.split(r"(?<=[ ,])", line):
        if lines[-1] and len(COLOUR.sub("", lines[-1] + word).rstrip("\n")) > width:
            lines[-1] = lines[-1].rstrip(" ")
            lines.append("")
        lines[-1] += word
    return "\n".join(lines)
