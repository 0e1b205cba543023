"""Failing disks: a stand-in for `os` in `recombine.files` that counts operations and makes one of them fail."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import recombine.files

# Every operation of `recombine.files` that changes the disk, or brings it to rest.
CHANGING = ("open", "write", "fsync", "rename", "mkdir", "unlink", "rmdir")
NAMED = ("open", "rename", "mkdir", "unlink", "rmdir")
FAULTS = ("crash", "crash after", "ENOSPC", "EIO")


class Crash(BaseException):
    """Simulates the end of the process: nothing reaches the disk after it."""


class LyingDisk:
    """Passes everything on to `os`, but silently flips a bit in write number `at`."""

    def __init__(self, at: int):
        self.left = at

    def __getattr__(self, name: str):
        return self._write if name == "write" else getattr(os, name)

    def _write(self, handle: int, data: bytes) -> int:
        self.left -= 1
        if self.left != -1:
            return os.write(handle, data)
        flipped = bytearray(data)
        flipped[len(flipped) // 2] ^= 1
        return os.write(handle, flipped)


class FailingDisk:
    """Passes everything on to `os`, but makes operation number `at` fail.

    After `crash` and `crash after` nothing more reaches the disk. A disk that is `full` stays full: names can be
    changed and removed, but nothing can be added. With `power_loss` the crash also destroys everything that was not
    synced: data (emptied or garbled), and names whose directory was not synced.
    """

    def __init__(self, at: int | None = None, fault: str = "crash"):
        self.at, self.fault = at, fault
        self.count = 0
        self.down = False
        self.paths: dict[int, Path] = {}
        self.dirty: set[Path] = set()
        self.moved: list[tuple[Path, Path]] = []
        self.made: list[Path] = []

    def __getattr__(self, name: str):
        real = getattr(os, name)
        if name not in CHANGING:
            return real

        def call(*args, **kwargs):
            if self.down:
                raise Crash
            reading = name == "open" and not args[1] & (os.O_WRONLY | os.O_RDWR)
            if not reading:
                number, self.count = self.count, self.count + 1
                if number == self.at or (self.fault == "full" and self.at is not None and number > self.at):
                    return self._break(name, real, args, kwargs)
            return self._do(name, real, args, kwargs)

        return call

    def _do(self, name: str, real, args, kwargs):
        new = name == "open" and not Path(args[0]).exists()
        result = real(*args, **kwargs)
        if name == "open":
            self.paths[result] = Path(args[0])
            if args[1] & os.O_CREAT and new:
                self.made.append(Path(args[0]))
        elif name == "mkdir":
            self.made.append(Path(args[0]))
        elif name == "write":
            self.dirty.add(self.paths[args[0]])
        elif name == "fsync":
            self._synced(self.paths[args[0]])
        elif name == "rename":
            self._renamed(Path(args[0]), Path(args[1]))
        return result

    def _break(self, name: str, real, args, kwargs):
        if self.fault == "full" and not (name in ("write", "mkdir") or (name == "open" and not Path(args[0]).exists())):
            return self._do(name, real, args, kwargs)
        if self.fault == "crash after":
            self._do(name, real, args, kwargs)
        if self.fault.startswith("crash"):
            self.down = True
            raise Crash
        if name == "write":  # a full disk takes a part of it
            self._do(name, real, (args[0], bytes(args[1])[: len(args[1]) // 2]), kwargs)
        number = errno.EIO if self.fault == "EIO" else errno.ENOSPC
        # As the system does: of a path it says which one, of a handle it does not.
        raise OSError(number, os.strerror(number), *(args[:1] if name in NAMED else ()))

    def _synced(self, path: Path) -> None:
        self.dirty.discard(path)
        self.made = [made for made in self.made if made.parent != path]
        self.moved = [(old, new) for old, new in self.moved if new.parent != path]

    def _renamed(self, old: Path, new: Path) -> None:
        self.moved.append((old, new))
        self.dirty = {new / p.relative_to(old) if p.is_relative_to(old) else p for p in self.dirty}
        self.made = [new / p.relative_to(old) if p.is_relative_to(old) else p for p in self.made if p != old]

    def lose_power(self, garble: bool) -> None:
        """Remove or garble everything that was not synced to the disk."""
        for path in self.dirty:
            if path.exists():
                size = path.stat().st_size
                path.write_bytes(os.urandom(size) if garble else b"")
        for path in self.made:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        for old, new in reversed(self.moved):
            if new.exists() and not old.exists():
                new.rename(old)


Shim = TypeVar("Shim", FailingDisk, LyingDisk)


@contextmanager
def disk(shim: Shim) -> Iterator[Shim]:
    """Puts a stand-in in the place of `os`, in `recombine.files` only."""
    recombine.files.os = shim  # pyright: ignore
    try:
        yield shim
    finally:
        recombine.files.os = os
