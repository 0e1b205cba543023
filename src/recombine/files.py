"""Writing files so that a reader sees the old one or the new one, whole, and never a part."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recombine.errors import InputError


def check_output(field: str, path: Path, suffixes: tuple[str, ...]) -> None:
    """Refuse, before any work is done, a path that could not be written."""
    if path.suffix.lower() not in suffixes:
        raise InputError(field, str(path), f"the name must end in {' or '.join(suffixes)}")
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # too long, or with a NUL in it
        raise InputError(field, str(path), f"not a usable file name ({error})") from error
    if path.is_dir():
        raise InputError(field, str(path), "is a directory; name a file")
    if not path.parent.is_dir():
        raise InputError(field, str(path), f"there is no directory {str(path.parent)!r}")
    if not os.access(path.parent, os.W_OK):
        raise InputError(field, str(path), f"the directory {str(path.parent)!r} cannot be written to")


@contextmanager
def replacing(field: str, path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to; moved into its place at the end, or removed on failure."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".recombine-", suffix=path.suffix)
        os.close(handle)
    except OSError as error:
        raise InputError(field, str(path), f"cannot be written ({error})") from error
    temporary = Path(name)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp's files are the owner's alone
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
