"""Locks of directories, and files that several processes may replace without one.

Only one process at a time may use a locked directory; another gets an error that names the holder. The operating system
frees the lock however its holder ends. Child processes do not inherit it, nor do forked ones, to which `flock` alone
would pass it on.

Scorecards, selections and references have no lock. A process that is told to exit finishes writing the file first. If a
process is killed while writing, the next process that measures or resumes the run removes the temporary file.
"""

import fcntl
import glob
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from recombine.errors import InputError, InUse
from recombine.files import UNFINISHED, make_directories, replace_file
from recombine.fork import close_private, keep_private

COORDINATOR = "coordinator.lock"  # in a directory of many runs; each run has its own lock besides
SECONDS_TO_WRITE = 60.0  # these files have a few kilobytes: an older temporary file was abandoned

Writing = Callable[[], AbstractContextManager[None]]
"""A context manager around a write, inside which the process is not ended by a signal."""


def take_lock(directory: Path, name: str) -> int:
    """Take the lock, and return its file handle, for `free_lock`. Creates the directory if needed."""
    try:
        make_directories(directory)
        handle = os.open(directory / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise InputError("out", str(directory), f"cannot be written ({error.strerror})") from error
    keep_private(handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(handle, 200, 0).decode(errors="replace").strip() or "another process"
        close_private(handle)
        raise InUse("out", str(directory), f"in use by {holder}") from error
    except OSError as error:
        close_private(handle)
        raise InputError("out", str(directory), f"cannot be locked ({error.strerror})") from error
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    except BaseException:
        close_private(handle)
        raise
    return handle


def free_lock(handle: int) -> None:
    with suppress(OSError):  # a forked child does not hold the lock
        fcntl.flock(
            handle, fcntl.LOCK_UN
        )  # not only closed: a child that is forked just now may have it for an instant
    close_private(handle)


@contextmanager
def coordinating(out: Path) -> Iterator[None]:
    """Hold the lock of a directory of runs, so that only one command executes them. Reading needs no lock."""
    handle = take_lock(out, COORDINATOR)
    try:
        yield
    finally:
        with suppress(OSError):
            os.ftruncate(handle, 0)  # so that the file no longer names a holder
        free_lock(handle)


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
