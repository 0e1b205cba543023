"""`recombine eval`: the scorecard of a run."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from recombine.cli.arguments import OptionalInt
from recombine.cli.printing import note, print_json
from recombine.errors import InputError

if TYPE_CHECKING:
    from recombine.experiment.interrupt import StopRequest
    from recombine.experiment.trained import Trained
    from recombine.report.collect import RunRecord


@dataclass(frozen=True)
class Eval:
    """The scorecard of runs: R² by split and mask, the probe by layer, more modules, interventions, references."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run directories."""
    model: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    """package.module:Class, for runs of a model of your own."""
    threads: OptionalInt = None
    """Threads; all cores where it is not given."""
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        if not self.runs:
            raise InputError("runs", "", "name at least one run directory")
        from recombine.experiment.machine import prepare
        from recombine.experiment.rundir import CONFIG, has_parameters

        for path in self.runs:
            if not path.exists():
                raise InputError("runs", str(path), "no such directory")
            if inside := sorted(run.parent.name for run in path.glob(f"*/{CONFIG}")):
                raise InputError(
                    "runs", str(path), f"a directory of runs; name some of them: {', '.join(inside[:4])} …"
                )
            if not (path / CONFIG).is_file():
                raise InputError("runs", str(path), f"not a run directory: it has no {CONFIG}")
        prepare(self.threads)
        from recombine.experiment.interrupt import run_interruptibly
        from recombine.experiment.trained import load_trained
        from recombine.model.own import import_model
        from recombine.report.card import print_card
        from recombine.report.collect import read_run

        if self.model:
            import_model(self.model)
        # All can be read before the first is measured.
        runs = {path: read_run(path) for path in self.runs}
        examined = {path for path, run in runs.items() if run.scorecard and not has_parameters(path)}
        for path in sorted(examined):
            note(f"{path}: its parameters are not here; this is what was measured where they were")
        trained = {path: None if path in examined else load_trained(path) for path in self.runs}

        def examine(request: "StopRequest") -> dict[str, Any]:
            with request.may_leave(lambda: None):
                return {str(path): scorecard(runs[path], found) for path, found in trained.items()}

        cards = run_interruptibly(examine, note)
        if self.json:
            print_json(cards if len(cards) > 1 else next(iter(cards.values())))
            return
        for path, card in cards.items():
            print_card(path, card)


def scorecard(run: "RunRecord", trained: "Trained | None") -> dict[str, Any]:
    """All that is measured of a run's newest checkpoint; what is stored already is not measured again.

    Without a model all of it is: such a run was exported without its parameters, after it had been examined.
    """
    from recombine.experiment.reference import REFERENCES_DIRECTORY, store_references
    from recombine.experiment.rundir import run_config

    row, card = measured(run, trained) if trained else (run.rows[-1], run.scorecard or {})
    references = store_references(run.path.parent / REFERENCES_DIRECTORY, run_config(run.path))
    step = row["step"]
    head = {"model": run.model, "support": run.support, "seed": run.seed, "step": step, "num_steps": run.num_steps}
    scores = {name: value for name, value in row.items() if name not in ("step", "loss")}
    return head | scores | {k: v for k, v in card.items() if k not in ("format", "step")} | {"references": references}


def measured(run: "RunRecord", trained: "Trained") -> tuple[dict[str, Any], dict[str, Any]]:
    """The row of metrics, and the scorecard."""
    from recombine.experiment.evaluate import examination, measurements
    from recombine.experiment.scorecard import store_scorecard
    from recombine.train.step import config_teacher

    config, model, step = trained
    row = next((row for row in reversed(run.rows) if row["step"] == step), None)
    if row is None:  # the newest checkpoint lies between two measurements
        note(f"{run.path}: measuring at step {step}")
        row = {"step": step} | dict(measurements(config, model, examination(config, config_teacher(config))))
    note(f"{run.path}: examining")
    return row, store_scorecard(run.path, trained)
