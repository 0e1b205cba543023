"""Opens files and directories below a given directory without following symbolic links.

Another user may be able to write below that directory, and may replace a directory by a link at any instant, even
between a check and the open that follows it. So no path is checked first and opened later. Instead, every directory
on the way is opened by its name, relative to the handle of its parent, and opening a link fails. The given directory
itself may be a link.

Every function takes that directory as `below`. Without `below`, links to directories are followed as usual: the
caller trusts everyone who can write there.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # the errors for a name that is missing, or is a link
STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY  # O_PATH, where it exists, needs no read permission


def open_below(path: Path, flags: int, below: Path | None) -> int:
    """Open a file and return its handle, like `os.open`."""
    if below is None:
        return os.open(path, flags)
    with _reached(path, below) as (name, directory):
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=directory)


def stat_below(path: Path, below: Path | None) -> os.stat_result | None:
    """The `os.stat` of a file or directory, or None if there is none. With `below`, links are not followed."""
    try:
        if below is None:
            return path.stat()
        with _reached(path, below) as (name, directory):
            return os.lstat(name, dir_fd=directory)
    except OSError as error:
        if error.errno not in ABSENT:
            raise
        return None
    except ValueError:  # a NUL in the name
        return None


def names_below(path: Path, below: Path | None) -> list[str]:
    """The names in a directory; empty if there is no such directory."""
    try:
        handle = open_below(path, os.O_RDONLY | os.O_DIRECTORY, below)
    except OSError as error:
        if error.errno not in ABSENT:
            raise
        return []
    try:
        return os.listdir(handle)
    finally:
        os.close(handle)


def is_directory(path: Path, below: Path | None) -> bool:
    if below is None:
        return path.is_dir()
    found = stat_below(path, below)
    return found is not None and stat.S_ISDIR(found.st_mode)


def is_regular(path: Path, below: Path | None) -> bool:
    """Whether the path is a regular file, and not a link."""
    if below is None:
        return path.is_file() and not path.is_symlink()
    found = stat_below(path, below)
    return found is not None and stat.S_ISREG(found.st_mode)


def open_directory(name: str | Path, above: int | None = None) -> int:
    """Open a directory and return its handle. With `above`, a parent's handle, the name is relative and not a link."""
    return os.open(name, STEP if above is None else STEP | os.O_NOFOLLOW, dir_fd=above)


@contextmanager
def _reached(path: Path, below: Path) -> Iterator[tuple[str, int]]:
    """The last name of a path, and a handle of the directory that contains it."""
    *names, last = _names(path, below)
    handle = open_directory(below)
    try:
        for name in names:
            inner = open_directory(name, handle)
            os.close(handle)
            handle = inner
        yield last, handle
    finally:
        os.close(handle)


def _names(path: Path, below: Path) -> Sequence[str]:
    text, start = str(path), f"{below}/"
    if text.startswith(start):  # the common case, five times as fast as the next
        names = text[len(start) :].split("/")
    elif path.is_relative_to(below):
        names = path.relative_to(below).parts or (".",)
    else:
        names = ("..",)
    if ".." in names:
        raise NotADirectoryError(errno.ENOTDIR, f"is not below {below.name}", text)
    return names
