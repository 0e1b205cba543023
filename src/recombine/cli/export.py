"""`recombine export`: runs in a form to keep and to share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from recombine.cli.printing import print_line
from recombine.errors import InputError


@dataclass(frozen=True)
class Export:
    """Copy runs in a form to keep and to share: what they measured, and their parameters if asked for."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run directories, or directories of them (a reproduction's, a sweep's)."""
    out: Path
    """The directory to which they are copied, each under its own name; their references beside them."""
    weights: bool = False
    """With the trained parameters (model.safetensors), so that `eval` and `serve` have a model."""
    model: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    """package.module:Class, for runs of a model of your own."""

    def run(self) -> None:
        if not self.runs:
            raise InputError("runs", "", "name at least one run directory")
        from recombine.experiment.export import check_export, export_list, export_run, runs_in
        from recombine.experiment.machine import prepare
        from recombine.files import make_output_directory
        from recombine.model.own import import_model

        prepare()
        if self.model:
            import_model(self.model)
        runs = [run for path in self.runs for run in runs_in(path)]
        check_export(runs, self.out, self.weights)
        make_output_directory("out", self.out)
        for run in runs:
            print_line(str(export_run(run, self.out, self.weights)))
        for path in self.runs:
            export_list(path, self.out)
