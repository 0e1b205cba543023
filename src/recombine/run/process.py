"""How a process of Recombine meets the system: its stdout, its home directory, and the processes that it starts.

Programs read stdout: JSON, or the lines of a protocol. A user's model, or a library, may print at any time: when it is
imported, while it is traced, and when Python exits. All of that goes to stderr. A user may have no home directory, for
example in a container that runs as any user.
"""

import os
import sys
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path

from recombine.fork import keep_private

PYTHON = (sys.executable, "-P")
"""Without `-P`, `python -m` puts the current directory first on the path, and would import files from there."""


def python_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module."""
    return [*PYTHON, "-m", module, *arguments]


def take_stdout(encoding: str = "utf-8", errors: str = "strict") -> TextIOWrapper:
    """The stdout of this process, for the caller alone and to the end: there is no way back, and each line is flushed.

    `print`, `sys.stdout` and the file descriptor 1 are stderr from here on, in processes that this one starts, too.
    """
    results = os.fdopen(os.dup(1), "w", buffering=1, encoding=encoding, errors=errors)
    keep_private(results.fileno())  # its reader sees the end when this process ends, whatever it has forked
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.flush()
        sys.stdout.reconfigure(line_buffering=True)  # like stderr, so that the lines of both stay in order
    os.dup2(2, 1)
    return results


def stdin_lines() -> Iterator[bytes]:
    """The lines of stdin until it ends, for a thread that may still be reading when the process exits.

    A thread that reads `sys.stdin` holds its lock, and Python aborts at exit if it cannot take that lock.
    """
    rest = b""
    while chunk := os.read(0, 1 << 16):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest


NOWHERE = os.devnull  # used as a directory, in which nobody can create anything


def settle_home() -> None:
    """If there is no home directory, name one that can contain nothing: libraries ask for a home, and fail without one.

    A directory that others can write to would be unsafe: files from a home, compiled programs included, are trusted.
    """
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = NOWHERE


def cache_directory() -> Path | None:
    """Our part of the user's cache; None where there is none."""
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given) / "recombine"
    settle_home()
    home = Path.home()
    return None if home == Path(NOWHERE) else home / ".cache" / "recombine"
