"""Archives: many runs in one ZIP file, read in place without unpacking to disk.

`evidence/` stores each study in a few archives. The members are the files of the runs, under the runs' names
(`transformer-connected+-seed0/config.toml`, …), and the `references/` beside them. Equal runs give equal bytes.
"""

import os
import struct
import threading
import weakref
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

from recombine.errors import InputError
from recombine.files import NotAFile, regular_file, replacing
from recombine.no_links import is_regular

SUFFIX = ".zip"
MOST_MEMBERS = 100_000
MOST_OPEN = 64  # cached archives; each keeps a file open
PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # other methods allocate memory before a byte is unpacked
LONGEST_AGO = (1980, 1, 1, 0, 0, 0)  # the earliest date in a ZIP file: bytes must not depend on the clock
BAD = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError)

Stamp = tuple[int, int, int]
"""Identifies a version of a file: inode, size, time of the last change."""


class Archive:
    """A ZIP file, opened for reading by any number of threads. It is closed when the last reference is gone."""

    def __init__(self, path: Path, below: Path | None = None):
        self.path = path
        with regular_file(path, below) as (handle, found):  # refuses links, pipes and directories
            self.stamp = _stamp(found)
            file = os.fdopen(os.dup(handle), "rb")
        weakref.finalize(self, file.close)
        try:
            self.zip = zipfile.ZipFile(file)
        except BAD as error:
            raise InputError("runs", str(path), f"is not a readable ZIP archive ({error})") from error
        if len(self.zip.filelist) > MOST_MEMBERS:
            raise InputError("runs", str(path), f"has more than {MOST_MEMBERS:,} members")
        self.turn = threading.Lock()  # zipfile locks the file position, but not its count of open members

    def names(self) -> list[str]:
        return self.zip.namelist()

    def has(self, name: str) -> bool:
        return name in self.zip.NameToInfo

    def read(self, name: str, most: int | None = None) -> bytes:
        """A member's content. A member of more than `most` bytes is refused."""
        info = self.zip.NameToInfo.get(name)
        if info is None:
            raise NotAFile(f"{name} is not in {self.path.name}")
        if most is not None and info.file_size > most:
            raise NotAFile(f"{name} has {info.file_size} bytes, at most {most}")
        if info.compress_type not in PACKINGS:
            raise NotAFile(f"{name} in {self.path.name} uses a compression method that is not supported")
        try:
            with self.turn, self.zip.open(info) as member:
                data = member.read(info.file_size + 1)
        except BAD as error:
            raise NotAFile(f"{name} in {self.path.name} is damaged ({error})") from error
        if len(data) != info.file_size:
            raise NotAFile(f"{name} in {self.path.name} is not as long as its header says")
        return data


_opened: OrderedDict[tuple[Path, Path | None], Archive] = OrderedDict()
_opening = threading.Lock()


def open_archive(path: Path, below: Path | None = None) -> Archive:
    """The archive at a path. It is cached, and opened again when the file has changed."""
    place = path.resolve() if below is None else path
    with _opening, regular_file(place, below) as (_, found):
        archive = _opened.pop((place, below), None)
        if archive is None or archive.stamp != _stamp(found):
            archive = Archive(place, below)
        _opened[place, below] = archive
        while len(_opened) > MOST_OPEN:
            _opened.popitem(last=False)
        return archive


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_ino, found.st_size, found.st_mtime_ns


def is_plain_path(name: str) -> bool:
    """Whether the name of a member or run stays inside its directory: no part is empty, hidden, or `..`."""
    return all(map(is_plain_name, name.split("/")))


def is_plain_name(name: str) -> bool:
    """Whether a name that was read from a file is a plain file name: not `..`, not hidden, without a path."""
    return not name.startswith(".") and name != "" and not set(name) & set("/\\\0")


def is_archive(path: Path, below: Path | None = None) -> bool:
    return path.suffix == SUFFIX and is_regular(path, below)


def split_path(path: Path, below: Path | None = None) -> tuple[Path, str] | None:
    """Split `study.zip/NAME` into the archive and the name in it. None if no part of the path is an archive."""
    for parent in (path, *path.parents):
        if is_archive(parent, below):
            name = path.relative_to(parent).as_posix()
            return parent, "" if name == "." else name
    return None


def write_archive(path: Path, members: Mapping[str, bytes]) -> None:
    """Write all members to one ZIP file, completely or not at all."""
    with replacing("out", path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, LONGEST_AGO)
            info.external_attr = 0o644 << 16
            archive.writestr(info, members[name], zipfile.ZIP_DEFLATED, compresslevel=9)
