"""The search for runs and sweeps below a directory: in directories, and in archives."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from recombine.errors import InputError
from recombine.jobs.sweep import LIST
from recombine.serve.run_summary import NO_FILE, FileStamp, FoundRun, Stamp, file_stamp, run_stamp
from recombine.storage.archive import SUFFIX, open_archive
from recombine.storage.source import (
    CHECKPOINTS,
    CONFIG,
    METRICS,
    SELECTION,
    STATUS,
    ArchiveSource,
    DirectorySource,
    find_runs,
)

DEPTH = 4
FILES = (CONFIG, METRICS, STATUS, SELECTION)  # in the order of a `Stamp`
MOST_ARCHIVES = 256  # with runs in them: each keeps a file open
# A small archive can hold more than any machine has time and memory for. These are bytes of unpacked files:
LARGEST_METRICS = 1 << 25  # of one run
LARGEST_IN_ALL = {CONFIG: 1 << 26, METRICS: 1 << 32, STATUS: 1 << 26, SELECTION: 1 << 26}  # of all runs together
LARGEST_LIST = 1 << 24  # of a sweep's list


class FoundSweep(NamedTuple):
    """A sweep's list, and where its runs are."""

    path: Path
    """The directory or the archive that has the list."""
    directory: str
    """The name of the directory under which its runs are shown."""


@dataclass
class Found:
    """Everything that was found, by the name that it is shown under."""

    runs: dict[str, FoundRun] = field(default_factory=dict)
    sweeps: dict[str, FoundSweep] = field(default_factory=dict)


class ArchiveContents(NamedTuple):
    """The runs of an archive by their names in it, and whether it has a sweep's list."""

    stamp: FileStamp
    runs: dict[str, FoundRun]
    has_list: bool = False
    error: str | None = None


class Finder:
    """Finds the runs below `root`, again and again; or the runs of `chosen` archives below it, and no others.

    An archive is listed again only when the file has changed.
    """

    def __init__(self, root: Path, chosen: Mapping[str, Path] | None = None):
        self.root, self.chosen = root, chosen
        self.archives: dict[str, ArchiveContents] = {}

    def find(self) -> Found:
        """Called once a second, for thousands of runs: it looks at four files of each run, and opens none."""
        found = Found()
        known, self.archives = self.archives, {}
        if self.chosen is None:
            self._walk(str(self.root), ".", DEPTH, found, known)
        for name, path in (self.chosen or {}).items():
            self._add_archive(str(path), name, found, known)
        return found

    def _walk(self, path: str, name: str, depth: int, found: Found, known: dict[str, ArchiveContents]) -> None:
        if stamp := run_stamp(path):
            found.runs[name] = FoundRun(DirectorySource(Path(path)), stamp)
            return
        try:
            with os.scandir(path) as entries:
                inside = sorted(entries, key=lambda entry: entry.name)
        except OSError:  # removed meanwhile, or not readable for this user
            return
        archives = []
        for entry in inside:
            if entry.name.startswith(".") or entry.name == CHECKPOINTS:
                continue
            if entry.is_file(follow_symlinks=False):
                if entry.name == LIST:
                    found.sweeps[name] = FoundSweep(Path(path), name)
                elif entry.name.endswith(SUFFIX):
                    archives.append(entry.path)
            elif depth and entry.is_dir(follow_symlinks=False):
                self._walk(entry.path, joined(name, _text(entry.name)), depth - 1, found, known)
        for archive in archives:  # after the directories, whose names go before
            self._add_archive(archive, name, found, known)

    def _add_archive(self, path: str, name: str, found: Found, known: dict[str, ArchiveContents]) -> None:
        """Add the runs of an archive `DIRECTORY/x.zip`, as if they were in `DIRECTORY`.

        A run whose name is taken is shown as if it were in `DIRECTORY/x`, and so are all runs of a sweep.
        """
        contents = self._contents(path, known)
        if contents.error is not None:
            stamp = Stamp(*[contents.stamp] * len(FILES))
            shown = joined(name, _text(Path(path).name))
            found.runs.setdefault(shown, FoundRun(DirectorySource(Path(path)), stamp, contents.error))
        directory = joined(name, _text(Path(path).stem))
        for run, place in contents.runs.items():
            shown = joined(name, run)
            found.runs.setdefault(joined(directory, run) if contents.has_list or shown in found.runs else shown, place)
        if contents.has_list:
            found.sweeps.setdefault(directory, FoundSweep(Path(path), directory))

    def _contents(self, path: str, known: dict[str, ArchiveContents]) -> ArchiveContents:
        stamp, contents = file_stamp(path), known.get(path)
        if contents is None or contents.stamp != stamp:
            if sum(1 for archive in self.archives.values() if archive.runs) >= MOST_ARCHIVES:
                return ArchiveContents(stamp, {}, error=f"there are more than {MOST_ARCHIVES} archives here")
            contents = _list_archive(Path(path), stamp)
        self.archives[path] = contents
        return contents


def joined(directory: str, name: str) -> str:
    """The name of something in a directory; `.` is the directory that is served."""
    return name if directory == "." else f"{directory}/{name}"


def _text(name: str) -> str:
    """A file's name as text. On disk it can be any bytes."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _list_archive(path: Path, stamp: FileStamp) -> ArchiveContents:
    try:
        archive, sources = open_archive(path), [run for run in find_runs(path) if isinstance(run, ArchiveSource)]
        runs = {run.prefix: _archived_run(run, stamp) for run in sources if _is_plain(run.prefix)}
        member = archive.zip.NameToInfo.get(LIST)
    except Exception as error:  # anything can be in a file that is called an archive
        why = error.expected if isinstance(error, InputError) else type(error).__name__
        return ArchiveContents(stamp, {}, error=why)
    for i, name in enumerate(FILES):
        if (size := sum(run.stamp[i][1] for run in runs.values())) > LARGEST_IN_ALL[name]:
            error = f"its files {name} have {size >> 20} MB together: too many to read them here"
            return ArchiveContents(stamp, {}, error=error)
    return ArchiveContents(stamp, runs, has_list=member is not None and member.file_size <= LARGEST_LIST)


def _is_plain(name: str) -> bool:
    """Whether a run's name in an archive is one that a directory below the archive could have: not `/x`, not `../x`."""
    parts = name.split("/")
    return len(parts) <= DEPTH and not any(not part or part.startswith(".") for part in parts)


def _archived_run(run: ArchiveSource, archive: FileStamp) -> FoundRun:
    """A run in an archive. The stamps of its files are the archive's, with the sizes of the unpacked files."""
    members = [run.archive.zip.NameToInfo.get(f"{run.prefix}/{name}") for name in FILES]
    stamp = Stamp(*((archive[0], member.file_size, archive[2]) if member else NO_FILE for member in members))
    size = stamp.metrics[1]
    error = f"{METRICS} has {size >> 20} MB: too many to read it from an archive" if size > LARGEST_METRICS else None
    return FoundRun(run, stamp, error)
