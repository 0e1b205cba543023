"""The sources that a run can be read from: its directory, or an archive."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from recombine.errors import InputError
from recombine.files import check_path, read_end, read_file
from recombine.no_links import is_directory, is_regular, names_below, stat_below
from recombine.storage.archive import Archive, is_archive, is_plain_path, open_archive, split_path

CONFIG, METRICS, TIMING, ENV, STATUS, LOCK, CHECKPOINTS = (
    "config.toml",
    "metrics.jsonl",
    "timing.jsonl",
    "env.json",
    "status.json",
    "lock",
    "checkpoints",
)
SCORECARD, SELECTION = "scorecard.json", "selection.json"  # measured once the run is done
WEIGHTS = "model.safetensors"  # in a run that was exported with its parameters
REFERENCES = "references"  # a directory beside the runs
LARGEST_METRICS = 1 << 28  # bytes
DEPTH = 3  # how many levels below a directory runs are searched


class RunSource(ABC):
    """The files of one run."""

    path: Path
    """The directory, or the path of the archive followed by the run's name."""

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @abstractmethod
    def has(self, name: str) -> bool:
        """Whether the run has a file of this name."""

    @abstractmethod
    def read(self, name: str, most: int | None = None) -> bytes:
        """A file's content. Raises `NotAFile` if it is missing, a link, or longer than `most` bytes."""

    @abstractmethod
    def read_end(self, name: str, most: int) -> bytes:
        """The last `most` bytes of a file, or the whole file if it is shorter."""

    @abstractmethod
    def read_beside(self, directory: str, name: str, most: int) -> bytes:
        """A file in a directory beside the run."""

    @abstractmethod
    def has_parameters(self) -> bool:
        """Whether a model can be loaded: the run has a checkpoint, or was exported with its parameters."""


class DirectorySource(RunSource):
    """A run directory. No link is followed below the directory `below`, which the user named."""

    def __init__(self, path: Path, below: Path | None = None):
        self.path, self.below = path, below

    def has(self, name: str) -> bool:
        return stat_below(self.path / name, self.below) is not None

    def read(self, name: str, most: int | None = None) -> bytes:
        return read_file(self.path / name, most, self.below)

    def read_end(self, name: str, most: int) -> bytes:
        return read_end(self.path / name, most, self.below)

    def read_beside(self, directory: str, name: str, most: int) -> bytes:
        return read_file(self.path.parent / directory / name, most, self.below)

    def has_parameters(self) -> bool:
        with suppress(OSError):
            if is_regular(self.path / WEIGHTS, self.below):
                return True
        with suppress(OSError):
            return any(name.startswith("step-") for name in names_below(self.path / CHECKPOINTS, self.below))
        return False


class ArchiveSource(RunSource):
    """A run in an archive."""

    def __init__(self, archive: Archive, prefix: str):
        self.archive, self.prefix = archive, prefix
        self.path = archive.path / prefix

    @property
    def name(self) -> str:
        return self.path.name

    def has(self, name: str) -> bool:
        return self.archive.has(self._member(name))

    def read(self, name: str, most: int | None = None) -> bytes:
        return self.archive.read(self._member(name), most)

    def read_end(self, name: str, most: int) -> bytes:
        return self.read(name, LARGEST_METRICS)[-most:]

    def read_beside(self, directory: str, name: str, most: int) -> bytes:
        parent = self.prefix.rpartition("/")[0]
        return self.archive.read("/".join(filter(None, (parent, directory, name))), most)

    def has_parameters(self) -> bool:
        return self.has(WEIGHTS)

    def _member(self, name: str) -> str:
        return f"{self.prefix}/{name}" if self.prefix else name


def open_run(path: Path, below: Path | None = None) -> RunSource:
    """The run at a path: a directory, or `ARCHIVE.zip/NAME`."""
    inside = None if is_directory(path, below) else split_path(path, below)
    if inside is None:
        source = DirectorySource(path, below)
    else:
        source = ArchiveSource(open_archive(inside[0], below), inside[1])
    if not source.has(CONFIG) or not (inside is None or inside[1] == "" or is_plain_path(inside[1])):
        is_there = inside is not None or stat_below(path, below) is not None
        what = "not a run directory: it has no" if is_there else "no such directory, and so no"
        raise InputError("run", str(path), f"{what} {CONFIG}")
    return source


def find_runs(path: Path, depth: int = DEPTH) -> Iterator[RunSource]:
    """The run at a path, or all runs below a directory or in an archive."""
    if is_archive(path):
        yield from archive_runs(open_archive(path))
    elif (path / CONFIG).is_file():
        yield DirectorySource(path)
    elif path.is_dir():
        for child in sorted(path.iterdir()):
            if is_archive(child) or (
                depth and child.is_dir() and not child.is_symlink() and not child.name.startswith(".")
            ):
                yield from find_runs(child, depth - 1)
    elif split_path(path) is not None:
        yield open_run(path)


def archive_runs(archive: Archive) -> Iterator[ArchiveSource]:
    ends = f"/{CONFIG}"
    for name in sorted(name for name in archive.names() if name.endswith(ends) and is_plain_path(name)):
        yield ArchiveSource(archive, name.removesuffix(ends))


def require_runs(path: Path, field: str = "runs") -> list[RunSource]:
    """The runs at a path. Raises an error if there are none."""
    check_path(field, path)
    found = list(find_runs(path))
    if not found:
        what = f"no run in it (a run directory has a {CONFIG})" if path.is_dir() else "no such directory"
        if path.is_file():
            what = "no run in this archive" if is_archive(path) else "is a file; name a directory or an archive (.zip)"
        raise InputError(field, str(path), what)
    return found
