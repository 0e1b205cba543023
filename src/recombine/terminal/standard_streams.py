"""Standard input, output and error, whatever the environment made of them: fit to be printed to."""

import errno
import io
import os
import sys

from recombine.terminal.output import results

DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


def settle_streams() -> None:
    """Make the standard streams usable. Call this before anything is printed or opened.

    A character that the terminal does not have is printed as a question mark. A stream that was closed is opened to
    nowhere: otherwise the next file would take its number, and what is printed would go into that file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def name_output(error: BaseException) -> None:
    """If a disk error names no file, name standard output: errors of our own files name them."""
    if isinstance(error, OSError) and error.filename is None and error.errno in DISK:
        discard_output()
        error.filename = "standard output"


def discard_output() -> None:
    """Discard the output that is left, so that Python does not fail again when it flushes at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, results().fileno())
    os.close(nowhere)
