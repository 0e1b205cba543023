"""Files that several processes may replace: scorecards, selections, references.

Nobody holds a lock on them. A process that is told to leave finishes the file first; what a killed one left of a file
is removed by the next that measures the run or resumes it.
"""

import glob
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from recombine.files import UNFINISHED, replace_file

SECONDS_TO_WRITE = 60.0  # these files have a few kilobytes: what is older than this, nobody is writing any more

Writing = Callable[[], AbstractContextManager[None]]
"""What a process that may be told to leave at any time puts around a write."""


def replace_shared(path: Path, data: bytes, writing: Writing = nullcontext) -> None:
    with writing():
        remove_leftovers(path)
        replace_file(path, data)


def remove_leftovers(path: Path) -> None:
    """What killed processes left of the file. Where that is not allowed, it stays."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*{UNFINISHED}"):
        with suppress(OSError):
            if time.time() - left.lstat().st_mtime > SECONDS_TO_WRITE:
                left.unlink()
