"""The stdout of a process of ours, for its results alone: what anything else prints goes to stderr.

Programs read it: JSON, or the lines of a protocol. A user's model, or a library, may print whenever it runs: when it is
imported, while it is traced, and when Python leaves.
"""

import os
import sys
from io import TextIOWrapper

from recombine.fork import keep_private


def take_stdout(encoding: str = "utf-8", errors: str = "strict") -> TextIOWrapper:
    """The stdout of this process, for the caller alone and to the end: there is no way back, and each line is flushed.

    `print`, `sys.stdout` and the file descriptor 1 are stderr from here on, in processes that this one starts, too.
    """
    results = os.fdopen(os.dup(1), "w", buffering=1, encoding=encoding, errors=errors)
    keep_private(results.fileno())  # who reads it sees its end when this process ends, not when a forked one does
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.flush()
        sys.stdout.reconfigure(line_buffering=True)  # as stderr is: its lines are in order with those of stderr
    os.dup2(2, 1)
    return results
