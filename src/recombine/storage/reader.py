"""The one place that reads run directories. What is not finished is read as far as it is."""

import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from recombine.config.schema import Config
from recombine.config.toml import Tables, parse_toml, read_toml, stored_config
from recombine.errors import InputError
from recombine.files import NotAFile
from recombine.record.codec import BadRecord, Record, decode
from recombine.record.reference import References
from recombine.record.run_state import Environment, Identity, Status
from recombine.record.score import MetricsRow
from recombine.record.sweep import Selection
from recombine.storage.archive import open_archive, split_path
from recombine.storage.reference_files import stored_references
from recombine.storage.source import CONFIG, ENV, LOCK, METRICS, SCORECARD, SELECTION, STATUS, RunSource, open_run

if TYPE_CHECKING:  # it would bring JAX to those who only read scores
    from recombine.measure.scorecard import Scorecard

LARGEST_METRICS, LARGEST_SCORECARD, LARGEST_SMALL = 1 << 28, 1 << 24, 1 << 20
TAIL = 1 << 18  # bytes from the end of the metrics in which the last row is looked for
SELECTION_FORMAT = 1


class _Formatted(Record, frozen=True):
    """What every version of a file says of itself."""

    format: int


@dataclass(frozen=True)
class StoredRun:
    """A run as its files tell it."""

    path: Path
    config: Config
    rows: tuple[MetricsRow, ...] = ()
    status: Status = field(default_factory=lambda: Status("unknown", 0, 0))
    scorecard: "Scorecard | None" = None
    references: References | None = None
    made: Identity | None = None
    """What it was last started with: versions, threads, devices."""

    @property
    def model(self) -> str:
        return self.config.model.label

    @property
    def support(self) -> str:
        return self.config.task.support.name

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def num_steps(self) -> int:
        return self.config.optimizer.num_steps

    @property
    def finished(self) -> bool:
        return bool(self.rows) and self.rows[-1].step == self.num_steps

    @property
    def last(self) -> MetricsRow | None:
        """The newest row of metrics."""
        return self.rows[-1] if self.rows else None


def read_run(source: RunSource, scorecard: bool = True) -> StoredRun:
    """Everything that a run's files say; without its scorecard, nothing that needs JAX."""
    config, rows = read_config(source), read_rows(source)
    card = read_scorecard(source) if scorecard else None
    if card is not None and not (rows and rows[-1].step == card.step):
        card = None  # of an earlier step: the run has been trained further since
    status = read_status(source) or Status("unknown", 0, config.optimizer.num_steps)
    starts = read_environment(source).starts
    made = starts[-1].identity if starts else None
    return StoredRun(source.path, config, rows, status, card, stored_references(source, config), made)


def read_config(source: RunSource) -> Config:
    try:
        text = source.read(CONFIG, LARGEST_SMALL).decode(errors="replace")
    except NotAFile as error:
        raise InputError("run", str(source.path), f"not a run directory: {error}") from error
    tables = parse_toml(text, str(source.path / CONFIG))
    try:
        return stored_config(tables)
    except InputError as error:
        raise InputError("run", str(source.path), f"its {CONFIG}: {error}") from error


def read_tables(path: Path) -> Tables:
    """The tables of a TOML file, which may be in an archive: `ARCHIVE.zip/RUN/config.toml`."""
    inside = None if path.exists() else split_path(path)
    if inside is None:
        return read_toml(path)
    try:
        text = open_archive(inside[0]).read(inside[1], LARGEST_SMALL).decode(errors="replace")
    except NotAFile as error:
        raise InputError("config", str(path), f"cannot be read ({error})") from error
    return parse_toml(text, str(path))


def run_config(path: Path) -> Config:
    """The configuration of the run at a path."""
    return read_config(open_run(path))


def read_rows(source: RunSource) -> tuple[MetricsRow, ...]:
    """The rows of metrics. A last line without its end is being written, and is left out."""
    if not source.has(METRICS):
        return ()
    try:
        text = source.read(METRICS, LARGEST_METRICS).decode(errors="replace")
    except NotAFile as error:
        raise InputError("run", str(source.path), f"not a run directory: {error}") from error
    rows = []
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        if not line.endswith("\n"):
            break
        try:
            rows.append(decode(line, MetricsRow))
        except BadRecord as error:
            raise InputError("run", str(source.path), f"row {number} of {METRICS} cannot be read ({error})") from error
    return tuple(rows)


def last_row(source: RunSource) -> MetricsRow | None:
    """The newest row of metrics; None where there is none, or none that can be read."""
    try:
        lines = source.read_end(METRICS, TAIL).split(b"\n")[:-1]
        return decode(lines[-1], MetricsRow) if lines else None
    except (OSError, BadRecord):
        return None


def read_status(source: RunSource) -> Status | None:
    """None where there is none, or none that can be read."""
    try:
        return decode(source.read(STATUS, LARGEST_SMALL), Status)
    except (OSError, BadRecord):
        return None


def read_environment(source: RunSource) -> Environment:
    """What made the run; empty where the file is missing or damaged."""
    try:
        return decode(source.read(ENV, LARGEST_SMALL), Environment)
    except (OSError, BadRecord):
        return Environment()


def read_scorecard(source: RunSource) -> "Scorecard | None":
    """None where there is none yet, or one of another format."""
    from recombine.measure.scorecard import FORMAT, Scorecard

    if not source.has(SCORECARD):
        return None
    try:
        data = source.read(SCORECARD, LARGEST_SCORECARD)
        return decode(data, Scorecard) if decode(data, _Formatted).format == FORMAT else None
    except (NotAFile, BadRecord) as error:
        raise InputError("scorecard", str(source.path / SCORECARD), f"cannot be read ({error})") from error


def read_selection(source: RunSource) -> Selection | None:
    """The scores that a sweep selects by; None where there are none, or of another format."""
    try:
        found = decode(source.read(SELECTION, LARGEST_SMALL), Selection)
    except (OSError, BadRecord):
        return None
    return found if found.format == SELECTION_FORMAT else None


def is_done(source: RunSource) -> bool:
    """Whether a run has been trained and measured to its end."""
    status = read_status(source)
    return status is not None and status.state == "done"


def is_alive(source: RunSource) -> bool:
    """Whether the process that holds a run's lock is there, as far as this machine can tell."""
    try:
        words = source.read(LOCK, 1 << 12).decode(errors="replace").split()
    except OSError:
        return False
    here = len(words) == 4 and words[1].isdecimal() and words[3] == socket.gethostname()
    if not here or not Path("/proc/self").exists():
        return True
    return Path(f"/proc/{words[1]}").exists()
