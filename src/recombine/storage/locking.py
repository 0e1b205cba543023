"""Locks: only one process at a time may use a directory; another gets an error that names the holder.

The operating system frees the lock however its holder ends. Child processes do not inherit it, nor do forked ones, to
which `flock` alone would pass it on.
"""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from recombine.errors import InputError, InUse
from recombine.files import make_directories
from recombine.fork import close_private, keep_private

COORDINATOR = "coordinator.lock"  # in a directory of many runs; each run has its own lock besides


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
    with suppress(OSError):  # in a forked child it is no lock any more
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
            os.ftruncate(handle, 0)  # no holder any more
        free_lock(handle)
