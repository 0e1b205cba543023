"""The list of a sweep's runs, `sweep.jsonl`, in the directory of the sweep.

It has a line for each run: its name, its seed, and the values of the fields in which the configurations differ. With
this list, the results of a sweep need only the scores of the runs, and not their configurations.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from recombine.errors import InputError
from recombine.files import NotAFile, make_directories, read_file, remove_unfinished, replace_file
from recombine.no_links import is_directory
from recombine.record.codec import BadRecord, decode, encode
from recombine.record.sweep import SweepLine
from recombine.storage.archive import Archive, is_plain_name, open_archive, split_path

LIST = "sweep.jsonl"
LARGEST = 1 << 28


def write_list(out: Path, lines: Iterable[SweepLine]) -> None:
    """Add runs to the list. A sweep can grow by seeds, or by more configurations."""
    listed = {line.name: line for line in read_list(out)} if (out / LIST).exists() else {}
    listed |= {line.name: line for line in lines}
    make_directories(out)
    remove_unfinished(out / LIST)
    replace_file(out / LIST, "".join(f"{encode(line)}\n" for line in listed.values()).encode())


def has_list(out: Path) -> bool:
    """Whether a directory or an archive contains a sweep."""
    inside = in_archive(out, LIST)
    return (out / LIST).is_file() if inside is None else inside[0].has(inside[1])


def in_archive(out: Path, name: str, below: Path | None = None) -> tuple[Archive, str] | None:
    """The archive of a sweep, and the path of `name` in it. None if the sweep is in a directory."""
    inside = None if is_directory(out, below) else split_path(out, below)
    return None if inside is None else (open_archive(inside[0], below), "/".join(filter(None, (inside[1], name))))


def read_list(out: Path, below: Path | None = None) -> Iterator[SweepLine]:
    """The lines of a sweep's directory or archive."""
    inside = in_archive(out, LIST, below)
    try:
        data = read_file(out / LIST, LARGEST, below) if inside is None else inside[0].read(inside[1], LARGEST)
        lines = [decode(line, SweepLine) for line in data.decode(errors="replace").splitlines()]
    except (NotAFile, BadRecord) as error:
        raise InputError("sweep", str(out), f"not the directory of a sweep: {LIST} cannot be read ({error})") from error
    for line in lines:
        if not is_plain_name(line.name):
            raise InputError("sweep", str(out), f"{LIST} has a line that does not name a run: {line.name!r}")
        yield line
