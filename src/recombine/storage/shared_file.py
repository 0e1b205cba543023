"""Files that several processes may replace: scorecards, selections, references.

They have no lock. A process that is told to exit finishes writing the file first. If a process is killed while writing,
the next process that measures or resumes the run removes the temporary file.
"""

import glob
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from recombine.files import UNFINISHED, replace_file

SECONDS_TO_WRITE = 60.0  # these files have a few kilobytes: an older temporary file was abandoned

Writing = Callable[[], AbstractContextManager[None]]
"""A context manager around a write, inside which the process is not ended by a signal."""


def replace_shared(path: Path, data: bytes, writing: Writing = nullcontext) -> None:
    with writing():
        remove_leftovers(path)
        replace_file(path, data)


def remove_leftovers(path: Path) -> None:
    """Remove the temporary files of killed processes, if permissions allow."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*{UNFINISHED}"):
        with suppress(OSError):
            if time.time() - left.lstat().st_mtime > SECONDS_TO_WRITE:
                left.unlink()
