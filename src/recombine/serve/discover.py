"""Finds runs and sweeps below a directory: in directories, and in archives."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from recombine.errors import InputError
from recombine.no_links import open_directory
from recombine.serve.run_summary import NO_FILE, FileStamp, FoundRun, Stamp, path_stamp, run_stamp
from recombine.storage.archive import SUFFIX, open_archive
from recombine.storage.source import (
    CHECKPOINTS,
    CONFIG,
    METRICS,
    SCORECARD,
    SELECTION,
    STATUS,
    ArchiveSource,
    DirectorySource,
    archive_runs,
)
from recombine.storage.sweep_list import LIST

DEPTH = 4
FILES = (CONFIG, METRICS, STATUS, SELECTION, SCORECARD)  # in the order of a `Stamp`
MOST_ARCHIVES = 256  # with runs in them: each keeps a file open
# A small archive can unpack to more data than any machine can handle. Limits in bytes of unpacked files, per run and
# of all runs together:
LARGEST_METRICS = 1 << 25
LARGEST_IN_ALL = {
    CONFIG: 1 << 26,
    METRICS: 1 << 32,
    STATUS: 1 << 26,
    SELECTION: 1 << 26,
    SCORECARD: 1 << 26,
}
LARGEST_LIST = 1 << 24  # the list of a sweep


class FoundSweep(NamedTuple):
    """The list of a sweep, and the place of its runs."""

    path: Path
    """The directory or the archive that contains the list."""
    directory: str
    """The name of the directory under which its runs are shown."""


@dataclass
class Found:
    """All runs and sweeps that were found, by the name under which they are shown."""

    runs: dict[str, FoundRun] = field(default_factory=dict)
    sweeps: dict[str, FoundSweep] = field(default_factory=dict)


class ArchiveContents(NamedTuple):
    """The runs of an archive by their names in it, and whether it contains the list of a sweep."""

    stamp: FileStamp
    runs: dict[str, FoundRun]
    has_list: bool = False
    error: str | None = None


class Finder:
    """Finds the runs below `root`, each time `find` is called; with `chosen`, only the runs of these archives.

    An archive is listed again only when the file has changed. No link below `root` is followed.
    """

    def __init__(self, root: Path, chosen: Mapping[str, Path] | None = None):
        self.root, self.chosen = root, chosen
        self.archives: dict[Path, ArchiveContents] = {}
        self.known_before: dict[Path, ArchiveContents] = {}

    def find(self) -> Found:
        """All runs and sweeps. Called once a second for thousands of runs, so it only stats four files per run."""
        found = Found()
        self.known_before, self.archives = self.archives, {}
        if self.chosen is None:
            self._walk(str(self.root), None, ".", DEPTH, found)
        for name, path in (self.chosen or {}).items():
            self._add_archive(path, name, found)
        return found

    def _walk(self, path: str, above: int | None, name: str, depth: int, found: Found) -> None:
        """Look for runs at a path; `above` is a handle of the directory that the path is in."""
        try:
            handle = open_directory(path if above is None else path.rpartition("/")[2], above)
        except OSError:  # removed meanwhile, replaced by a link, or not accessible for this user
            return
        try:
            self._look(path, handle, name, depth, found)
        finally:
            os.close(handle)

    def _look(self, path: str, handle: int, name: str, depth: int, found: Found) -> None:
        if stamp := run_stamp(handle):
            found.runs[name] = FoundRun(DirectorySource(Path(path), self.root), stamp)
            return
        files, directories = _listed(handle)
        if LIST in files:
            found.sweeps[name] = FoundSweep(Path(path), name)
        for inside in directories if depth else ():
            self._walk(f"{path}/{inside}", handle, joined(name, _text(inside)), depth - 1, found)
        for file in files:  # after the directories, whose names take precedence
            if file.endswith(SUFFIX):
                self._add_archive(Path(path, file), name, found)

    def _add_archive(self, path: Path, name: str, found: Found) -> None:
        """Add the runs of an archive `DIRECTORY/x.zip`, as if they were in `DIRECTORY`.

        A run whose name is taken is shown as if it were in `DIRECTORY/x`, and so are all runs of a sweep.
        """
        contents = self._contents(path)
        if contents.error is not None:
            stamp = Stamp(*[contents.stamp] * len(FILES))
            shown = joined(name, _text(path.name))
            found.runs.setdefault(shown, FoundRun(DirectorySource(path, self.root), stamp, contents.error))
        directory = joined(name, _text(path.stem))
        for run, place in contents.runs.items():
            shown = joined(name, run)
            found.runs.setdefault(joined(directory, run) if contents.has_list or shown in found.runs else shown, place)
        if contents.has_list:
            found.sweeps.setdefault(directory, FoundSweep(path, directory))

    def _contents(self, path: Path) -> ArchiveContents:
        stamp, contents = path_stamp(path, self.root), self.known_before.get(path)
        if contents is None or contents.stamp != stamp:
            if sum(1 for archive in self.archives.values() if archive.runs) >= MOST_ARCHIVES:
                return ArchiveContents(stamp, {}, error=f"there are more than {MOST_ARCHIVES} archives")
            contents = _list_archive(path, self.root, stamp)
        self.archives[path] = contents
        return contents


def _listed(handle: int) -> tuple[list[str], list[str]]:
    """The names of the regular files and of the directories in a directory, in order."""
    files, directories = [], []
    try:
        listing = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=handle)
    except OSError:  # not readable for this user
        return [], []
    try:
        with os.scandir(listing) as entries:
            for entry in entries:
                if entry.name.startswith(".") or entry.name == CHECKPOINTS:
                    continue
                if entry.is_file(follow_symlinks=False):
                    files.append(entry.name)
                elif entry.is_dir(follow_symlinks=False):
                    directories.append(entry.name)
    except OSError:
        return [], []
    finally:
        os.close(listing)
    return sorted(files), sorted(directories)


def joined(directory: str, name: str) -> str:
    """The name of something in a directory; `.` is the directory that is served."""
    return name if directory == "." else f"{directory}/{name}"


def _text(name: str) -> str:
    """A file's name as text. On disk it can be any bytes."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _list_archive(path: Path, below: Path, stamp: FileStamp) -> ArchiveContents:
    try:
        archive = open_archive(path, below)
        runs = {run.prefix: _archived_run(run, stamp) for run in archive_runs(archive) if _is_plain(run.prefix)}
        member = archive.zip.NameToInfo.get(LIST)
    except Exception as error:  # a file called .zip can contain anything
        why = error.expected if isinstance(error, InputError) else type(error).__name__
        return ArchiveContents(stamp, {}, error=why)
    for i, name in enumerate(FILES):
        if (size := sum(run.stamp[i][1] for run in runs.values())) > LARGEST_IN_ALL[name]:
            error = f"its files {name} have {size >> 20} MB together: too large to read here"
            return ArchiveContents(stamp, {}, error=error)
    return ArchiveContents(stamp, runs, has_list=member is not None and member.file_size <= LARGEST_LIST)


def _is_plain(name: str) -> bool:
    """Whether a run's name in an archive is a plain relative path, unlike `/x` and `../x`."""
    parts = name.split("/")
    return len(parts) <= DEPTH and not any(not part or part.startswith(".") for part in parts)


def _archived_run(run: ArchiveSource, archive: FileStamp) -> FoundRun:
    """A run in an archive. The stamps of its files are the archive's, with the sizes of the unpacked files."""
    members = [run.archive.zip.NameToInfo.get(f"{run.prefix}/{name}") for name in FILES]
    stamp = Stamp(*((archive[0], member.file_size, archive[2]) if member else NO_FILE for member in members))
    size = stamp.metrics[1]
    error = f"{METRICS} has {size >> 20} MB: too large to read from an archive" if size > LARGEST_METRICS else None
    return FoundRun(run, stamp, error)
