"""Locks: one process at a time has a directory, and who comes second is told who has it.

The system frees a lock however its holder ends. Processes that the holder starts do not have it, nor do those that are
forked from it, though `flock` would give it to them.
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

COORDINATOR = "coordinator.lock"  # in a directory of many runs, each of which has a lock of its own


def take_lock(directory: Path, name: str) -> int:
    """The open file that is the lock, for `free_lock`. The directory is made where there is none."""
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
    """One command at a time has the runs of a directory carried out. Those that only read it need not ask."""
    handle = take_lock(out, COORDINATOR)
    try:
        yield
    finally:
        with suppress(OSError):
            os.ftruncate(handle, 0)  # nobody has it
        free_lock(handle)
