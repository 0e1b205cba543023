"""The summary of one run, a row in the table of runs. It never fails, whatever the run's files contain."""

import hashlib
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from recombine.config.schema import Config
from recombine.config.toml import config_tables
from recombine.errors import InputError
from recombine.no_links import stat_below
from recombine.record.codec import Record
from recombine.serve.explorer.description import why_not_explored
from recombine.storage.integrity import recorded
from recombine.storage.reader import is_alive, last_row, read_config, read_final_novel, read_status
from recombine.storage.source import CONFIG, METRICS, SCORECARD, SELECTION, STATUS, ArchiveSource, RunSource
from recombine.storage.thinned_metrics import curve_point

LONGEST_TEXT = 300  # characters, the limit for a text from a file

FileStamp = tuple[int, int, int]
"""Identifies a version of a file: inode, size, time of the last change. All zero if there is no file."""
NO_FILE: FileStamp = (0, 0, 0)


class Stamp(NamedTuple):
    """The stamps of a run's files; changes when the run does."""

    config: FileStamp
    metrics: FileStamp
    status: FileStamp
    selection: FileStamp
    scorecard: FileStamp


class FoundRun(NamedTuple):
    """A place where a run was found."""

    source: RunSource
    stamp: Stamp
    error: str | None = None
    """The reason why nothing can be read from it: the archive is damaged, for example."""


class RunSummary(Record, frozen=True, kw_only=True):
    """A row of the table of runs."""

    name: str
    """The run's path below the directory that is served."""
    study: str
    """The directory that contains the run."""
    state: str
    """The state in `status.json`, or `killed`, or `unreadable`."""
    step: int = 0
    model: str | None = None
    support: str | None = None
    seed: int | None = None
    num_steps: int | None = None
    configuration: str | None = None
    """A digest that is the same for runs that differ only in their seed."""
    sizes: tuple[int, ...] | None = None
    measured: int | None = None
    """The step of the last row of metrics."""
    loss: float | None = None
    in_dist: float | None = None
    ood: float | None = None
    novel: float | None = None
    """From the scorecard, which has more contexts; until there is one, from the last row of metrics."""
    probe: float | None = None
    control: float | None = None
    control_modules: float | None = None
    playable: bool = False
    """Whether its model can be loaded."""
    not_explored: str | None = None
    """Why the explorer does not show its model, as far as the configuration tells."""
    error: str | None = None


@dataclass(frozen=True)
class SeenRun:
    """A run as it was when it was last read."""

    source: RunSource
    stamp: Stamp
    config: Config | None
    summary: RunSummary

    @property
    def name(self) -> str:
        return self.summary.name

    @property
    def path(self) -> Path:
        return self.source.path


def run_stamp(directory: int) -> Stamp | None:
    """The stamp of the run in a directory, given by its handle. None if there is no run."""
    stamp = Stamp(*(file_stamp(name, directory) for name in (CONFIG, METRICS, STATUS, SELECTION, SCORECARD)))
    is_run = any(stamp.config) or (any(stamp.metrics) and any(stamp.status))  # also if its configuration is missing
    return stamp if is_run else None


def file_stamp(name: str, directory: int) -> FileStamp:
    """The stamp of a file in a directory, given by its handle."""
    try:
        return _stamp(os.lstat(name, dir_fd=directory))
    except (OSError, ValueError):
        return NO_FILE


def path_stamp(path: Path, below: Path) -> FileStamp:
    try:
        found = stat_below(path, below)
    except OSError:
        return NO_FILE
    return NO_FILE if found is None else _stamp(found)


def _stamp(found: os.stat_result) -> FileStamp:
    return found.st_ino, found.st_size, found.st_mtime_ns


def read_summary(found: FoundRun, name: str, before: SeenRun | None = None) -> SeenRun:
    """Read a run from its files. The configuration is taken from `before` if its file has not changed."""
    if found.error is not None:
        return SeenRun(found.source, found.stamp, None, _unreadable(name, found.error))
    try:
        if before is None or before.stamp.config != found.stamp.config:
            before = _with_config(found, name)
        return replace(before, source=found.source, stamp=found.stamp, summary=_with_scores(before, found))
    except Exception as error:  # a file can contain anything; the other runs must still be shown
        return SeenRun(found.source, found.stamp, None, _unreadable(name, _reason(error)))


def _unreadable(name: str, why: str) -> RunSummary:
    return RunSummary(name=name, study=_study(name), state="unreadable", error=why[:LONGEST_TEXT])


def _reason(error: Exception) -> str:
    return error.expected if isinstance(error, InputError) else type(error).__name__


def _study(name: str) -> str:
    return Path(name).parent.as_posix()


def _with_scores(before: SeenRun, found: FoundRun) -> RunSummary:
    """The summary with the parts that change during training: the state and the scores."""
    if before.config is None:
        return before.summary
    source = found.source
    status, row = read_status(source), last_row(source)
    state, step, error = (status.state, status.step, status.error) if status else ("unknown", 0, None)
    if status is None:
        error = f"{STATUS} cannot be read"
    if state == "running" and not is_alive(source):
        state = "killed"
    if row is None and found.stamp.metrics[1] and status is not None and status.step > 0 and not error:
        error = f"{METRICS} has no row that can be read"
    error = error or "; ".join(recorded(source).notes) or None
    point = None if row is None else curve_point(row)
    novel = None if row is None else read_final_novel(source, row.step)
    return msgspec.structs.replace(
        before.summary,
        state=state,
        step=step if row is None else max(step, row.step),
        measured=None if point is None else point.step,
        loss=None if point is None else point.loss,
        in_dist=None if point is None else point.in_dist,
        ood=None if point is None else point.ood,
        novel=novel.r2 if novel is not None else None if point is None else point.novel,
        probe=None if point is None else point.probe,
        control=None if point is None else point.control,
        control_modules=None if point is None else point.control_modules,
        playable=source.has_parameters(),
        error=None if error is None else error[:LONGEST_TEXT],
    )


def _with_config(found: FoundRun, name: str) -> SeenRun:
    """A run of which only the configuration was read."""
    if found.stamp.config == NO_FILE:
        return SeenRun(found.source, found.stamp, None, _unreadable(name, f"it has no {CONFIG}"))
    try:
        config = read_config(found.source)
    except Exception as error:  # a file can contain anything
        why = _reason(error)
        for beginning in ("not a run directory: ", f"its {CONFIG}: ", f"{CONFIG}: "):  # name the file only once
            why = why.removeprefix(beginning)
        return SeenRun(found.source, found.stamp, None, _unreadable(name, f"{CONFIG}: {why}"))
    task = config.task
    summary = RunSummary(
        name=name,
        study=_study(name),
        state="unknown",
        model=config.model.label,
        support=task.support.name,
        seed=config.seed,
        num_steps=config.optimizer.num_steps,
        configuration=_digest(replace(config, seed=0)),
        sizes=(task.input_dim, task.hidden_dim, task.num_modules, task.episode_length),
        not_explored=why_not_explored(task, config.model),
    )
    return SeenRun(found.source, found.stamp, config, summary)


def _digest(config: Config) -> str:
    return hashlib.sha256(json.dumps(config_tables(config), sort_keys=True).encode()).hexdigest()[:12]


def may_be_killed(seen: SeenRun) -> bool:
    """Whether the run's process must be checked even if no file has changed."""
    return seen.summary.state == "running" and not isinstance(seen.source, ArchiveSource)
