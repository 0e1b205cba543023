"""One run, as the table of runs shows it. Whatever its files hold, reading them does no harm."""

import hashlib
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from recombine.config.schema import Config
from recombine.config.toml import config_tables
from recombine.errors import InputError
from recombine.record.codec import Record
from recombine.run.curve import curve_point
from recombine.run.reader import is_alive, last_row, read_config, read_status
from recombine.run.source import CONFIG, METRICS, SELECTION, STATUS, ArchiveSource, RunSource

LONGEST = 300  # characters of a text that a file gives

FileStamp = tuple[int, int, int]
Stamp = tuple[FileStamp, FileStamp, FileStamp, FileStamp]
"""Of the configuration, the metrics, the status and the selection."""


class RunSummary(Record, frozen=True, kw_only=True):
    """A row of the table."""

    name: str
    """The run's path below the directory that is served."""
    study: str
    """The directory that it shares with other runs."""
    state: str
    step: int = 0
    model: str | None = None
    support: str | None = None
    seed: int | None = None
    num_steps: int | None = None
    configuration: str | None = None
    """The same for runs that differ in their seed alone."""
    sizes: tuple[int, ...] | None = None
    measured: int | None = None
    """The step of the last row of metrics."""
    loss: float | None = None
    in_dist: float | None = None
    ood: float | None = None
    control: float | None = None
    control_modules: float | None = None
    playable: bool = False
    """Whether its model can be loaded."""
    error: str | None = None


@dataclass(frozen=True)
class SeenRun:
    """A run as it was when it was last looked at."""

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

    @property
    def selection(self) -> FileStamp:
        """Changes when what a sweep selects by does."""
        return self.stamp[3]

    @property
    def metrics(self) -> FileStamp:
        """Changes when the metrics do."""
        return self.stamp[1]


def run_stamp(path: str) -> Stamp | None:
    """What changes when a run directory does; None where there is no run."""
    config, metrics, status, selection = (file_stamp(f"{path}/{name}") for name in (CONFIG, METRICS, STATUS, SELECTION))
    is_run = any(config) or (any(metrics) and any(status))  # one that has lost its configuration is to be told of
    return (config, metrics, status, selection) if is_run else None


def file_stamp(path: str) -> FileStamp:
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return 0, 0, 0
    return found.st_ino, found.st_size, found.st_mtime_ns


def look(source: RunSource, name: str, stamp: Stamp, before: SeenRun | None = None) -> SeenRun:
    """A run as its files tell it now. What stands in a configuration is taken from `before` where that is the same."""
    try:
        return _look(source, name, stamp, before)
    except Exception as error:  # whatever it is, the other runs are to be shown all the same
        return SeenRun(source, stamp, None, _unreadable(name, type(error).__name__))


def _unreadable(name: str, why: str) -> RunSummary:
    return RunSummary(name=name, study=_study(name), state="unreadable", error=why[:LONGEST])


def _study(name: str) -> str:
    return Path(name).parent.as_posix()


def _look(source: RunSource, name: str, stamp: Stamp, before: SeenRun | None) -> SeenRun:
    if before is None or before.stamp[0] != stamp[0]:
        before = _look_at_config(source, name, stamp)
    if before.config is None:
        return replace(before, stamp=stamp)
    status, row = read_status(source), last_row(source)
    state, step, error = (status.state, status.step, status.error) if status else ("unknown", 0, None)
    if status is None:
        error = f"{STATUS} cannot be read"
    if state == "running" and not is_alive(source):
        state = "killed"
    if row is None and stamp[1][1] and not error and source.has(METRICS):
        error = f"{METRICS} has no row that can be read"
    scores = {}
    if row is not None:
        point = curve_point(row)
        shown = ("loss", "in_dist", "ood", "control", "control_modules")
        scores = {"measured": row.step} | {score: getattr(point, score) for score in shown}
    summary = msgspec.structs.replace(
        before.summary,
        state=state,
        step=step if row is None else max(step, row.step),
        playable=source.has_parameters(),
        error=None if error is None else error[:LONGEST],
        **(dict.fromkeys(("measured", "loss", "in_dist", "ood", "control", "control_modules")) | scores),
    )
    return replace(before, source=source, stamp=stamp, summary=summary)


def _look_at_config(source: RunSource, name: str, stamp: Stamp) -> SeenRun:
    try:
        config = read_config(source)
    except Exception as error:  # anything can stand in a file
        why = error.expected if isinstance(error, InputError) else type(error).__name__
        return SeenRun(source, stamp, None, _unreadable(name, f"{CONFIG}: {why}"))
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
    )
    return SeenRun(source, stamp, config, summary)


def _digest(config: Config) -> str:
    return hashlib.sha256(json.dumps(config_tables(config), sort_keys=True).encode()).hexdigest()[:12]


def is_running(seen: SeenRun) -> bool:
    """Whether its process has to be looked for, each time."""
    return seen.summary.state == "running" and not isinstance(seen.source, ArchiveSource)
