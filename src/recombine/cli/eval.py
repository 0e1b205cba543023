"""`recombine eval` examines runs; `recombine score` scores predictions that any program made."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from recombine.checks import check_size
from recombine.cli.arguments import OptionalClass, OptionalInt, plain_help
from recombine.config.model import MOST_INFERENCE_STEPS
from recombine.errors import InputError
from recombine.files import check_path
from recombine.terminal.output import note, print_csv, print_json

if TYPE_CHECKING:
    from recombine.run.examine import Examined
    from recombine.run.signals import StopSignal
    from recombine.storage.source import RunSource


@dataclass(frozen=True)
@plain_help
class Eval:
    """Examine runs: R² by split, mask and number of active modules, probes, recovered modules, interventions."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run directories, or ARCHIVE.zip/NAME for a run in an archive."""
    model: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    """package.module:Class, for runs of a custom model."""
    task: OptionalClass = None
    """package.module:Class, for runs of a custom task."""
    threads: OptionalInt = None
    """Number of threads. Default: all cores."""
    inference_steps: OptionalInt = None
    """Steps of explicit inference, for models that execute a latent. Default: 3, as in the scorecard."""
    json: bool = False
    """Print JSON."""
    csv: bool = False
    """Print the scores of models and references as CSV, with a row for each split."""

    def run(self) -> None:
        if not self.runs:
            raise InputError("runs", "", "name at least one run directory")
        if self.inference_steps is not None:
            check_size("inference_steps", self.inference_steps, most=MOST_INFERENCE_STEPS)
        if self.json and self.csv:
            raise InputError("csv", True, "cannot be combined with --json; leave one of them out")
        sources = [_one_run(path) for path in self.runs]
        from recombine.run.machine import prepare

        prepare(self.threads)
        from recombine.model.custom import import_model
        from recombine.run.examine import examine
        from recombine.run.load import load_model
        from recombine.run.signals import run_interruptibly
        from recombine.storage.reader import read_run
        from recombine.task.custom_task import import_task
        from recombine.terminal.scorecard import print_examined

        if self.model:
            import_model(self.model)
        if self.task:
            import_task(self.task)
        # Read all runs before the first is measured, so that errors come early.
        runs = [read_run(source, scorecard=not source.has_parameters()) for source in sources]
        trained = []
        for run, source in zip(runs, sources, strict=True):
            stored_only = run.scorecard is not None and not source.has_parameters()
            if stored_only:
                note(f"{run.path}: has no parameters; showing the stored measurements")
            trained.append(None if stored_only else load_model(run.path, say=note))

        def work(stop: "StopSignal") -> "list[Examined]":
            with stop.exit_allowed(lambda: None):
                return [
                    examine(run, model, note, stop.writing, self.inference_steps)
                    for run, model in zip(runs, trained, strict=True)
                ]

        examined = run_interruptibly(work, note)
        if self.json:
            cards = {str(path): one.as_json() for path, one in zip(self.runs, examined, strict=True)}
            print_json(cards if len(cards) > 1 else next(iter(cards.values())))
            return
        if self.csv:
            from recombine.notebook.frame import final_rows

            measured = [replace(one.run, rows=(one.row,), references=one.references) for one in examined]
            print_csv(row for run in measured for row in final_rows(run))
            return
        for path, one in zip(self.runs, examined, strict=True):
            print_examined(str(path), one)


@dataclass(frozen=True)
@plain_help
class Score:
    """Score predictions that any program made for a file of episodes, beside the references on the same episodes."""

    predictions: tyro.conf.Positional[Path]
    """An .npz file with `prediction` (one number per episode) and `digest` (that of the file of episodes)."""
    episodes: Path
    """The .npz file of episodes, from `recombine task sample`."""
    task: OptionalClass = None
    """package.module:Class, for episodes of a custom task."""
    no_references: bool = False
    """Leave out the references, which take longer than the scores."""
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        check_path("predictions", self.predictions)
        check_path("episodes", self.episodes)
        from recombine.run.machine import prepare

        prepare()
        from recombine.exam.episode_file import read_episode_file
        from recombine.exam.score import read_predictions, score_file
        from recombine.task.custom_task import import_task

        if self.task:
            import_task(self.task)
        file = read_episode_file(self.episodes)
        found = score_file(read_predictions(self.predictions, file), file, not self.no_references)
        if self.json:
            from recombine.record.codec import plain

            print_json(plain(found))
            return
        from recombine.terminal.exam import print_exam

        print_exam(str(self.predictions), found)


def _one_run(path: Path) -> "RunSource":
    """The run at a path. If there are several runs below the path, raises an error that lists them."""
    from recombine.storage.source import CONFIG, require_runs

    check_path("runs", path)
    if path.is_dir() and not (path / CONFIG).is_file() and not any(path.iterdir()):
        raise InputError("runs", str(path), f"not a run directory: it has no {CONFIG}")
    found = require_runs(path)
    here = path.resolve()  # an archive has an absolute path
    inside = [source.path.resolve().relative_to(here).as_posix() for source in found]
    if inside != ["."]:
        names = ", ".join(inside[:4]) + (" …" if len(inside) > 4 else "")
        raise InputError("runs", str(path), f"it contains several runs; name some of them: {names}")
    found[0].path = path  # show the path as the user gave it
    return found[0]
