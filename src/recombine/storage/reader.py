"""The one place that reads run directories, also of runs that are still training."""

import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from recombine.code_digest import UNKNOWN
from recombine.config.schema import Config
from recombine.config.toml import Tables, parse_toml, read_toml, stored_config
from recombine.errors import InputError
from recombine.files import NotAFile, check_path
from recombine.record.codec import BadRecord, Record, decode
from recombine.record.novel import NovelScore, NovelScores
from recombine.record.reference import References
from recombine.record.run_state import Environment, Identity, RunState, Status
from recombine.record.score import SCORECARD_FORMAT, MetricsRow
from recombine.record.seal import Sealed, unseal
from recombine.record.sweep import Selection
from recombine.storage.archive import open_archive, split_path
from recombine.storage.integrity import SCORECARD_CODE, code_of, recorded, references_code
from recombine.storage.reference_files import stored_references
from recombine.storage.source import (
    CONFIG,
    ENV,
    LOCK,
    METRICS,
    SCORECARD,
    SELECTION,
    STATUS,
    RunSource,
    open_run,
)

if TYPE_CHECKING:  # at run time it would import JAX, which is not needed to read scores
    from recombine.measure.scorecard import Scorecard

LARGEST_SCORECARD, LARGEST_SMALL = 1 << 24, 1 << 20
SELECTION_FORMAT = 1


class _Formatted(Record, frozen=True):
    """The one field that every version of the file has."""

    format: int


class _ScorecardNovel(Record, frozen=True):
    """The part of a scorecard that can be read without JAX."""

    step: int
    novel: NovelScores | None = None


@dataclass(frozen=True)
class StoredRun:
    """A run, read from its files."""

    path: Path
    config: Config
    rows: tuple[MetricsRow, ...] = ()
    status: Status = field(default_factory=lambda: Status("unknown", 0, 0))
    scorecard: "Scorecard | None" = None
    references: References | None = None
    made: Identity | None = None
    """The identity of its last start: versions, threads, devices, digests of the code."""
    notes: tuple[str, ...] = ()
    """Warnings for whoever reads the numbers: damage that was found, results of other or unknown code."""

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
        """Whether it was measured at its last step. The verified rows decide, not the status: a process may be killed
        after it wrote the rows and before it updated the status."""
        return bool(self.rows) and self.rows[-1].step == self.num_steps

    @property
    def state(self) -> RunState:
        """The state to display: `done` for finished runs, and only for them."""
        if self.finished:
            return "done"
        return "stopped" if self.status.state == "done" else self.status.state

    @property
    def last(self) -> MetricsRow | None:
        """The newest row of metrics."""
        return self.rows[-1] if self.rows else None

    @property
    def summary(self) -> str:
        """The run in a few words: 'transformer on connected+, seed 0, step 40 of 40 (done)'."""
        step = 0 if self.last is None else self.last.step
        return f"{self.model} on {self.support}, seed {self.seed}, step {step:,} of {self.num_steps:,} ({self.state})"

    def __repr__(self) -> str:
        return f"StoredRun({self.path}: {self.summary})"


def read_run(source: RunSource, scorecard: bool = True) -> StoredRun:
    """Read everything in a run's files. With `scorecard=False`, JAX is not imported."""
    found = recorded(source)
    config, rows = parse_config(source, found.config), parse_rows(source, found.metrics)
    _check_splits(source, config, rows)
    sealed = read_scorecard(source) if scorecard else None
    card = None if sealed is None else sealed.value
    if card is not None and not (rows and rows[-1].step == card.step):
        card = None  # measured at an earlier step: the run has been trained further since
    status = read_status(source) or Status("unknown", 0, config.optimizer.num_steps)
    starts = read_environment(source).starts
    made = starts[-1].identity if starts else None
    references, notes = stored_references(source, config), list(found.notes)
    if made is None or made.sources == UNKNOWN:
        notes.append("made by unknown code, before runs recorded their code")
    if sealed is not None and not sealed.measured_by(code_of(config, SCORECARD_CODE)):
        notes.append("its scorecard was measured by other code; `recombine eval` measures it again")
    if references is not None and not references.measured_by(references_code(config)):
        notes.append("its references were computed by other code; `recombine eval` computes them again")
    scores = None if references is None else references.value
    return StoredRun(source.path, config, rows, status, card, scores, made, tuple(notes))


def read_config(source: RunSource) -> Config:
    """The configuration, verified."""
    return parse_config(source, recorded(source).config)


def parse_config(source: RunSource, text: str) -> Config:
    """The configuration in a text that `recorded` gave."""
    tables = parse_toml(text, str(source.path / CONFIG))
    try:
        return stored_config(tables)
    except InputError as error:
        raise InputError("run", str(source.path), f"its {CONFIG}: {error}") from error


def read_tables(path: Path) -> Tables:
    """The tables of a TOML file, which may be in an archive: `ARCHIVE.zip/RUN/config.toml`."""
    check_path("config", path)
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
    """The rows of metrics, verified."""
    return parse_rows(source, recorded(source).metrics)


def parse_rows(source: RunSource, text: str) -> tuple[MetricsRow, ...]:
    """The rows in a text that `recorded` gave. A last line without a newline is still being written: it is left out."""
    rows = []
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        if not line.endswith("\n"):
            break
        try:
            rows.append(decode(line, MetricsRow))
        except BadRecord as error:
            raise InputError("run", str(source.path), f"row {number} of {METRICS} cannot be read ({error})") from error
    return tuple(rows)


def _check_splits(source: RunSource, config: Config, rows: tuple[MetricsRow, ...]) -> None:
    """Refuse rows without `ood` if masks are held out, and with it if not. Means would silently skip such a run."""
    for number, row in enumerate(rows, start=1):
        if (row.ood is not None) != bool(config.task.support.held_out):
            what = "no ood, though masks are held out" if row.ood is None else "an ood, though no mask is held out"
            raise InputError("run", str(source.path), f"row {number} of {METRICS} has {what}")


def last_row(source: RunSource) -> MetricsRow | None:
    """The newest row of metrics. None if there is none, or if it cannot be read."""
    try:
        return last_row_of(recorded(source).metrics)
    except (OSError, InputError):
        return None


def last_row_of(metrics: str) -> MetricsRow | None:
    """The newest row in a text. None if there is none, or if it cannot be read."""
    lines = metrics.split("\n")[:-1]
    try:
        return decode(lines[-1], MetricsRow) if lines else None
    except BadRecord:
        return None


def read_status(source: RunSource) -> Status | None:
    """The run's status. None if there is none, or if it cannot be read."""
    try:
        return decode(source.read(STATUS, LARGEST_SMALL), Status)
    except (OSError, BadRecord):
        return None


def read_environment(source: RunSource) -> Environment:
    """The record of the run's starts; empty if the file is missing or damaged."""
    try:
        return decode(source.read(ENV, LARGEST_SMALL), Environment)
    except (OSError, BadRecord):
        return Environment()


def read_scorecard(source: RunSource) -> "Sealed[Scorecard] | None":
    """The scorecard. None if there is none yet, or if it has another format."""
    from recombine.measure.scorecard import Scorecard

    if not source.has(SCORECARD):
        return None
    try:
        data = source.read(SCORECARD, LARGEST_SCORECARD)
        return unseal(data, Scorecard) if decode(data, _Formatted).format == SCORECARD_FORMAT else None
    except (NotAFile, BadRecord) as error:
        what = f"its {SCORECARD} cannot be read ({error}); remove it, and `recombine eval` measures it again"
        raise InputError("run", str(source.path), what) from error


def read_final_novel(source: RunSource, step: int) -> NovelScore | None:
    """The novel part in the scorecard of a run that was trained to `step`. JAX is not imported."""
    try:
        data = source.read(SCORECARD, LARGEST_SCORECARD)
        if decode(data, _Formatted).format != SCORECARD_FORMAT:
            return None
        found = unseal(data, _ScorecardNovel).value
    except (OSError, NotAFile, BadRecord):
        return None
    return found.novel.ood if found.novel is not None and found.step == step else None


def read_selection(source: RunSource) -> Sealed[Selection] | None:
    """The scores that a sweep selects by. None if there are none yet, or if they have another format."""
    if not source.has(SELECTION):
        return None
    try:
        found = unseal(source.read(SELECTION, LARGEST_SMALL), Selection)
    except (NotAFile, BadRecord) as error:
        what = f"its {SELECTION} cannot be read ({error}); remove it, and the same sweep measures it again"
        raise InputError("run", str(source.path), what) from error
    return found if found.value.format == SELECTION_FORMAT else None


def is_done(source: RunSource) -> bool:
    """Whether a run has been trained and measured to its end."""
    status = read_status(source)
    return status is not None and status.state == "done"


def is_alive(source: RunSource) -> bool:
    """Whether the process that holds a run's lock is alive. True if it is on another machine, which is not checked."""
    try:
        words = source.read(LOCK, 1 << 12).decode(errors="replace").split()
    except OSError:
        return False
    here = len(words) == 4 and words[1].isdecimal() and words[3] == socket.gethostname()
    return not here or process_exists(int(words[1]))


def process_exists(process: int) -> bool:
    """Whether a process of this machine exists. A signal 0 is never delivered; it only asks."""
    try:
        os.kill(process, 0)
    except PermissionError:  # it is another user's
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True
