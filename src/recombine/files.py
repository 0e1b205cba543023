"""Reads and writes files safely: a file is written completely or not at all; links are not followed.

Every disk operation of a run goes through `os` in this file, so that a test can make each operation fail in turn.
"""

import errno
import glob
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from recombine.errors import InputError
from recombine.no_links import ABSENT, open_below

UNFINISHED = ".new"  # the suffix of a file that is still being written


class NotAFile(OSError):
    """A path is not a readable regular file: it is missing, a link, a directory, or too large."""


def check_output(field: str, path: Path, suffixes: tuple[str, ...]) -> None:
    """Refuse a path that cannot be written, before any work is done."""
    if path.suffix.lower() not in suffixes:
        raise InputError(field, str(path), f"the name must end in {' or '.join(suffixes)}")
    check_name(field, path)
    if path.is_dir():
        raise InputError(field, str(path), "is a directory; name a file")
    if not path.parent.is_dir():
        raise InputError(field, str(path), f"there is no directory {str(path.parent)!r}")
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".recombine-"):
            pass  # os.access is no test: it always says yes to root, and for /proc
    except OSError as error:
        wanted = f"the directory {str(path.parent)!r} cannot be written to ({error.strerror})"
        raise InputError(field, str(path), wanted) from error


def check_name(field: str, path: Path) -> None:
    """Refuse a name under which nothing can be written."""
    try:
        str(path).encode()  # JSON files, archives and pages contain the name; they are UTF-8
    except UnicodeEncodeError as error:
        raise InputError(field, str(path), "not a usable file name; it must be UTF-8 text") from error
    check_path(field, path)


def check_path(field: str, path: Path) -> None:
    """Refuse a name that no file can have. The file need not exist."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # too long, or with a NUL in it
        raise InputError(field, str(path), f"not a usable file name ({error})") from error


@contextmanager
def replacing(field: str, path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` to write to. It replaces `path` at the end, and is removed on failure."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".recombine-", suffix=path.suffix)
        os.close(handle)
    except OSError as error:
        raise InputError(field, str(path), f"cannot be written ({error.strerror})") from error
    temporary = Path(name)
    try:
        with _naming(path):
            yield temporary
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(0o666 & ~umask)  # mkstemp makes files that only the owner can read
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
    except BaseException:
        with suppress(OSError):  # the first error is the one to report
            temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file in the system's errors: the system knows only a handle, when it cannot write, sync or close."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


def write_new(path: Path, data: bytes) -> None:
    """Write a new file. It is on the disk when this returns."""
    _write(path, os.O_EXCL, data)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file's content atomically. It is on the disk when this returns. Safe with several processes."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{UNFINISHED}")
    try:
        write_new(temporary, data)
        os.rename(temporary, path)
    except OSError as error:
        error.filename = str(path)  # not the temporary file, which is removed
        with suppress(OSError):  # the first error is the one to report
            os.unlink(temporary)
        raise
    sync_directory(path.parent)


@contextmanager
def where_allowed() -> Iterator[None]:
    """Ignore permission errors inside, for optional files: a directory that we may not write to is left as it is."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise


def remove_unfinished(path: Path) -> None:
    """Remove the temporary files of killed processes. Only for a file that no other process may be writing."""
    for temporary in path.parent.glob(f".{glob.escape(path.name)}.*{UNFINISHED}"):
        os.unlink(temporary)


def append(path: Path, data: bytes) -> None:
    """Append to a file. The data is on the disk when this returns."""
    new = not path.exists()
    _write(path, os.O_APPEND, data)
    if new:
        sync_directory(path.parent)


def _write(path: Path, how: int, data: bytes) -> None:
    with _naming(path):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | how, 0o666)
        try:
            _write_all(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)


def read_file(path: Path, most: int | None = None, below: Path | None = None) -> bytes:
    """A regular file's content. Links are not followed, and a file of more than `most` bytes is refused."""
    with regular_file(path, below) as (handle, found):
        if most is not None and found.st_size > most:
            raise NotAFile(f"{path.name} has {found.st_size} bytes, at most {most}")
        return _read_all(handle, path, most)


def read_named(field: str, path: Path, most: int) -> str:
    """The text of a file that the user named; or a line that says why it cannot be read."""
    try:
        return read_named_bytes(field, path, most).decode()
    except UnicodeDecodeError as error:
        raise InputError(field, str(path), "cannot be read (not UTF-8 text)") from error


def read_named_bytes(field: str, path: Path, most: int) -> bytes:
    """The content of a file that the user named, which may be a link; or a line that says why it cannot be read.

    Pipes, devices and sockets are refused: a pipe may never say anything, and a device may never end.
    """
    try:
        with _open_file(path, os.open(path, os.O_RDONLY | os.O_NONBLOCK)) as (handle, _):
            return _read_all(handle, path, most)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or error
        raise InputError(field, str(path), f"cannot be read ({why})") from error


def _read_all(handle: int, path: Path, most: int | None) -> bytes:
    """To the end, wherever the system says that it is: files of /proc have no size."""
    parts, size = [], 0
    while part := os.read(handle, 1 << 20):
        parts.append(part)
        size += len(part)
        if most is not None and size > most:
            raise NotAFile(f"{path.name} has more than {most} bytes")
    return b"".join(parts)


def read_end(path: Path, most: int, below: Path | None = None) -> bytes:
    """The last `most` bytes of a regular file, or the whole file if it is shorter. Links are not followed."""
    with regular_file(path, below) as (handle, found):
        return os.pread(handle, most, max(0, found.st_size - most))


@contextmanager
def regular_file(path: Path, below: Path | None = None) -> Iterator[tuple[int, os.stat_result]]:
    """Open a regular file for reading: yields its handle and its `os.stat`.

    A link is refused. With `below`, so is a link among the directories between `below` and the file
    (see `recombine.no_links`).
    """
    try:
        handle = open_below(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, below)
    except OSError as error:
        if error.errno not in ABSENT:
            raise  # an error of the system, not of the file: the file may be good
        raise NotAFile(f"{path.name}: {error.strerror}") from error
    with _open_file(path, handle) as opened:
        yield opened


@contextmanager
def _open_file(path: Path, handle: int) -> Iterator[tuple[int, os.stat_result]]:
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise NotAFile(f"{path.name} is not a regular file")
        yield handle, found
    finally:
        os.close(handle)


def sync_directory(path: Path) -> None:
    """Bring a directory's entries to the disk: a new name is durable only after this."""
    with _naming(path):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_directory(path: Path) -> None:
    os.mkdir(path)


def make_directories(path: Path) -> None:
    """Make a directory and its missing parents. They are on the disk when this returns."""
    if path.is_dir():
        return
    make_directories(path.parent)
    with suppress(FileExistsError):  # another process was faster
        os.mkdir(path)
    sync_directory(path.parent)


def make_output_directory(field: str, path: Path) -> None:
    """Make a directory. Raises an `InputError` that says why if that fails."""
    check_name(field, path)
    try:
        make_directories(path)
    except OSError as error:
        raise InputError(field, str(path), f"cannot be created ({error.strerror})") from error


def rename(path: Path, to: Path) -> None:
    os.rename(path, to)


def remove_directory(path: Path) -> None:
    """Remove a directory and everything in it. A link is removed, never followed."""
    if path.is_symlink():
        os.unlink(path)
        return
    for entry in sorted(path.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            remove_directory(entry)
        else:
            os.unlink(entry)
    os.rmdir(path)


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
