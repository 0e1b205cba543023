"""Archives: run directories in one ZIP file, read in place. Nothing is ever unpacked.

`evidence/` keeps a study in a few of them. The members are the files of the runs under the runs' names
(`transformer-connected+-seed0/config.toml`, …) and the `references/` beside them. Equal runs make equal bytes.
"""

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from recombine.errors import InputError
from recombine.files import NotAFile, regular_file, replacing

SUFFIX = ".zip"
MOST_MEMBERS = 100_000
LONGEST_AGO = (1980, 1, 1, 0, 0, 0)  # the earliest date that a ZIP file can hold: the bytes do not depend on the clock
BAD = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, UnicodeError, ValueError)


class Archive:
    """A ZIP file, opened for reading."""

    def __init__(self, path: Path):
        self.path = path
        with regular_file(path):  # refuses links, pipes and directories
            pass
        try:
            self.zip = zipfile.ZipFile(path)
        except BAD as error:
            raise InputError("runs", str(path), f"is not a readable ZIP archive ({error})") from error
        if len(self.zip.filelist) > MOST_MEMBERS:
            raise InputError("runs", str(path), f"has more than {MOST_MEMBERS:,} members")

    def names(self) -> list[str]:
        return self.zip.namelist()

    def has(self, name: str) -> bool:
        return name in self.zip.NameToInfo

    def read(self, name: str, most: int | None = None) -> bytes:
        """A member's content; nothing longer than `most` bytes is unpacked."""
        info = self.zip.NameToInfo.get(name)
        if info is None:
            raise NotAFile(f"{name} is not in {self.path.name}")
        if most is not None and info.file_size > most:
            raise NotAFile(f"{name} has {info.file_size} bytes, at most {most}")
        try:
            with self.zip.open(info) as member:
                data = member.read(info.file_size + 1)
        except (*BAD, OSError) as error:
            raise NotAFile(f"{name} in {self.path.name} is damaged ({error})") from error
        if len(data) != info.file_size:
            raise NotAFile(f"{name} in {self.path.name} is longer than it says")
        return data


def open_archive(path: Path) -> Archive:
    """The archive, opened once and again when the file has changed."""
    found = path.stat()
    return _open(path.resolve(), found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=64)
def _open(path: Path, _modified: int, _size: int) -> Archive:
    return Archive(path)


def is_archive(path: Path) -> bool:
    return path.suffix == SUFFIX and path.is_file() and not path.is_symlink()


def split_path(path: Path) -> tuple[Path, str] | None:
    """`study.zip/NAME` as the archive and the name in it; None where no part of the path is an archive."""
    for parent in (path, *path.parents):
        if is_archive(parent):
            return parent, path.relative_to(parent).as_posix().removeprefix(".")
    return None


def write_archive(path: Path, members: Mapping[str, bytes]) -> None:
    """All members in one file, whole or not at all."""
    with replacing("out", path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, LONGEST_AGO)
            info.external_attr = 0o644 << 16
            archive.writestr(info, members[name], zipfile.ZIP_DEFLATED, compresslevel=9)


def read_members(path: Path) -> Iterator[tuple[str, bytes]]:
    archive = open_archive(path)
    for name in archive.names():
        yield name, archive.read(name)
