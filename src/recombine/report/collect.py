"""The runs that a report is about, read from their directories and from nothing else."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from recombine.config import Config
from recombine.config_file import config_as_dict
from recombine.errors import InputError
from recombine.experiment.reference import REFERENCES_DIRECTORY, stored_references
from recombine.experiment.rundir import CONFIG, ENV, METRICS, STATUS, run_config
from recombine.experiment.scorecard import read_scorecard
from recombine.files import NotAFile, read_file

LARGEST_METRICS = 1 << 28
DEPTH = 3  # how far below a directory runs are looked for

# What the runs of one report must have in common, or their curves could not be drawn side by side.
SHARED = (
    ("task", "input_dim"),
    ("task", "hidden_dim"),
    ("task", "episode_length"),
    ("optimizer", "num_steps"),
    ("measure", "episodes"),
)


@dataclass(frozen=True)
class RunRecord:
    """A run as the report sees it."""

    path: Path
    model: str
    support: str
    seed: int
    config: dict[str, Any]
    rows: tuple[dict[str, Any], ...] = ()
    status: dict[str, Any] = field(default_factory=dict)
    scorecard: dict[str, Any] | None = None
    references: dict[str, Any] | None = None
    made: dict[str, Any] = field(default_factory=dict)
    """What it was made with: versions, threads, devices."""

    @property
    def num_steps(self) -> int:
        return self.config["optimizer"]["num_steps"]

    @property
    def finished(self) -> bool:
        return bool(self.rows) and self.rows[-1]["step"] == self.num_steps


@dataclass(frozen=True)
class Study:
    """The runs of one report."""

    runs: tuple[RunRecord, ...]

    @property
    def seeds(self) -> list[int]:
        return sorted({run.seed for run in self.runs})


def collect(paths: Sequence[Path]) -> Study:
    """Every run in the directories, which must belong together."""
    found: dict[Path, RunRecord] = {}
    for path in paths:
        directories = list(run_directories(path, DEPTH))
        if not directories:
            raise InputError("runs", str(path), f"no run in it (a run directory has a {CONFIG})")
        for directory in directories:
            found.setdefault(directory.resolve(), read_run(directory))
    return study_of(list(found.values()))


def study_of(records: Sequence[RunRecord]) -> Study:
    """The runs in order; refused if they do not belong together."""
    runs = sorted(records, key=lambda run: (run.support, run.model, run.seed, str(run.path)))
    _check_together(runs)
    return Study(tuple(runs))


def read_run(path: Path) -> RunRecord:
    """One run directory. What is not finished is read as far as it is."""
    config = run_config(path)
    status = _read_json(path / STATUS) or {"state": "unknown", "step": 0, "num_steps": config.optimizer.num_steps}
    rows = tuple(_rows(path / METRICS))
    references = stored_references(path.parent / REFERENCES_DIRECTORY, config)
    card = read_scorecard(path)
    if card and not (rows and rows[-1]["step"] == card["step"]):
        card = None  # of an earlier step: the run has gone on since
    return replace(
        _record(path, config), rows=rows, status=status, scorecard=card, references=references, made=_made(path)
    )


def _record(path: Path, config: Config) -> RunRecord:
    return RunRecord(path, config.model.label, config.task.support.name, config.seed, config_as_dict(config))


def _made(path: Path) -> dict[str, Any]:
    """What the run was last started with: versions, threads, devices."""
    starts = (_read_json(path / ENV) or {}).get("starts")
    last = starts[-1] if isinstance(starts, list) and starts else None
    found = last.get("identity") if isinstance(last, dict) else None
    return found if isinstance(found, dict) else {}


def check_belongs(path: Path, planned: Mapping[str, Config]) -> None:
    """Refuse runs in a directory that could not be in one report with those that are to be made there."""
    made = [_record(path / name, config) for name, config in planned.items()]
    others = [other for other in run_directories(path, DEPTH) if other not in {run.path for run in made}]
    _check_together(made + [_record(other, run_config(other)) for other in others])


def run_directories(path: Path, depth: int) -> Iterator[Path]:
    if (path / CONFIG).is_file():
        yield path
    elif depth and path.is_dir():
        for child in sorted(path.iterdir()):
            if child.is_dir() and not child.is_symlink() and not child.name.startswith("."):
                yield from run_directories(child, depth - 1)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    try:
        text = read_file(path, LARGEST_METRICS).decode(errors="replace")
    except NotAFile as error:
        raise InputError("run", str(path.parent), f"not a run directory: {error}") from error
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        if not line.endswith("\n"):
            return  # the row is being written
        try:
            row = json.loads(line)
            int(row["step"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError("run", str(path.parent), f"row {number} of {METRICS} cannot be read") from error
        yield row


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(read_file(path, 1 << 20))
    except (NotAFile, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _check_together(runs: Sequence[RunRecord]) -> None:
    first = runs[0]
    for run in runs[1:]:
        for section, name in SHARED:
            one, other = first.config[section][name], run.config[section][name]
            if one != other:
                wanted = f"do not belong together: {section}.{name} is {one} in {first.path} and {other} in {run.path}"
                raise InputError("runs", f"{first.path}, {run.path}", wanted)
    alike: dict[tuple[str, str], RunRecord] = {}
    masks: dict[str, RunRecord] = {}
    for run in runs:
        twin = alike.setdefault((run.model, run.support), run)
        for name in sorted(twin.config.keys() | run.config.keys() - {"seed"}):
            if name != "seed" and twin.config.get(name) != run.config.get(name):
                what = (
                    f"are both {run.model} on {run.support}, and differ in {name}: they are not seeds of one experiment"
                )
                raise InputError("runs", f"{twin.path}, {run.path}", what)
        twin = masks.setdefault(run.support, run)
        if twin.config["task"]["support"] != run.config["task"]["support"]:
            raise InputError(
                "runs", f"{twin.path}, {run.path}", f"both call their support {run.support}; it is not the same"
            )
    teachers: dict[int, RunRecord] = {}
    for run in runs:
        twin = teachers.setdefault(run.seed, run)
        one, other = (each.config.get("teacher_seed", each.seed) for each in (twin, run))
        if one != other:
            what = f"are both of seed {run.seed}, and have other teachers, {one} and {other}: they cannot be compared"
            raise InputError("runs", f"{twin.path}, {run.path}", what)
    seen: dict[tuple[str, str, int], RunRecord] = {}
    for run in runs:
        twin = seen.setdefault((run.model, run.support, run.seed), run)
        if twin is not run:
            what = f"{run.model} on {run.support}, seed {run.seed}"
            raise InputError("runs", f"{twin.path}, {run.path}", f"are both {what}; a report shows one of each")
