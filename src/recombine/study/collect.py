"""Collects the runs of a study from directories or archives. Runs that are not comparable are refused."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from recombine.config.schema import Config
from recombine.config.task import VARIATIONS
from recombine.config.toml import config_tables
from recombine.errors import InputError
from recombine.html_table import html_table
from recombine.storage.reader import StoredRun, read_run, run_config
from recombine.storage.source import find_runs, require_runs

# The fields in which all runs of a report must agree: otherwise their curves could not share a plot.
SHARED = (
    "task.input_dim",
    "task.hidden_dim",
    "task.episode_length",
    *(f"task.{name}" for name in VARIATIONS),
    "optimizer.num_steps",
    "measure.episodes",
)


@dataclass(frozen=True)
class Study:
    """The runs of one report."""

    runs: tuple[StoredRun, ...]

    @property
    def seeds(self) -> list[int]:
        return sorted({run.seed for run in self.runs})

    def __repr__(self) -> str:
        models, supports = ({getattr(run, name): None for run in self.runs} for name in ("model", "support"))
        return f"Study({len(self.runs)} runs: {', '.join(models)}; on {', '.join(supports)}; seeds {self.seeds})"

    def _repr_html_(self) -> str:
        rows = [(run.path.name, run.model, run.support, run.seed, run.state) for run in self.runs]
        return html_table(repr(self), ("run", "model", "support", "seed", "state"), rows)


def collect(paths: Sequence[Path]) -> Study:
    """Every run in the directories and archives. They must be comparable."""
    found: dict[Path, StoredRun] = {}
    for path in paths:
        for source in require_runs(path):
            found.setdefault(source.path.resolve(), read_run(source))
    return study_of(list(found.values()))


def study_notes(study: Study, name: Callable[[StoredRun], str] = lambda run: str(run.path)) -> list[str]:
    """The notes on the runs' numbers. Runs with the same note share a line."""
    runs: dict[str, list[StoredRun]] = {}
    for run in study.runs:
        for note in run.notes:
            runs.setdefault(note, []).append(run)
    return [f"{name(some[0]) if len(some) == 1 else f'{len(some)} runs'}: {note}" for note, some in runs.items()]


def study_of(runs: Sequence[StoredRun]) -> Study:
    """The runs as a study, in order. They must be comparable."""
    ordered = sorted(runs, key=lambda run: (run.support, run.model, run.seed, str(run.path)))
    _check_together(ordered)
    return Study(tuple(ordered))


def check_belongs(path: Path, planned: Mapping[str, Config]) -> None:
    """Refuse a directory with runs that could not share a report with the planned ones."""
    made = [StoredRun(path / name, config) for name, config in planned.items()]
    others = [source.path for source in find_runs(path) if source.path not in {run.path for run in made}]
    _check_together(made + [StoredRun(other, run_config(other)) for other in others])


def field_value(config: Config, field: str) -> object:
    """The value of a field such as `task.episode_length`. None if the model does not have the field."""
    value: object = config
    for name in field.split("."):
        value = getattr(value, name, None)
    return value


def _check_together(runs: Sequence[StoredRun]) -> None:
    first = runs[0]
    for run in runs[1:]:
        for field in SHARED:
            one, other = field_value(first.config, field), field_value(run.config, field)
            if one != other:
                wanted = f"do not belong together: {field} is {one} in {first.path} and {other} in {run.path}"
                raise InputError("runs", f"{first.path}, {run.path}", wanted)
    _check_seeds(runs)
    _check_teachers(runs)
    seen: dict[tuple[str, str, int], StoredRun] = {}
    for run in runs:
        twin = seen.setdefault((run.model, run.support, run.seed), run)
        if twin is not run:
            what = f"{run.model} on {run.support}, seed {run.seed}"
            raise InputError("runs", f"{twin.path}, {run.path}", f"are both {what}; a report shows one of each")


def _check_seeds(runs: Sequence[StoredRun]) -> None:
    """Refuse runs of the same model and support that differ in more than their seed."""
    alike: dict[tuple[str, str], StoredRun] = {}
    masks: dict[str, StoredRun] = {}
    for run in runs:
        twin = alike.setdefault((run.model, run.support), run)
        if replace(twin.config, seed=0) != replace(run.config, seed=0):
            tables, others = config_tables(twin.config), config_tables(run.config)
            names = (name for name in tables | others if name != "seed" and tables.get(name) != others.get(name))
            what = f"are both {run.model} on {run.support}, and differ in {next(names)}"
            raise InputError("runs", f"{twin.path}, {run.path}", f"{what}: they are not seeds of one experiment")
        twin = masks.setdefault(run.support, run)
        if twin.config.task.support != run.config.task.support:
            what = f"have different supports of the same name, {run.support}"
            raise InputError("runs", f"{twin.path}, {run.path}", what)


def _check_teachers(runs: Sequence[StoredRun]) -> None:
    """Refuse runs with the same seed and different teachers: they are compared with each other."""
    teachers: dict[int, StoredRun] = {}
    for run in runs:
        twin = teachers.setdefault(run.seed, run)
        one, other = (
            each.seed if each.config.teacher_seed is None else each.config.teacher_seed for each in (twin, run)
        )
        if one != other:
            what = f"have the same seed ({run.seed}) and different teachers ({one} and {other}): not comparable"
            raise InputError("runs", f"{twin.path}, {run.path}", what)
