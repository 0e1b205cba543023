"""`recombine export`: copies runs for sharing."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from recombine.cli.arguments import OptionalClass, plain_help
from recombine.errors import InputError
from recombine.terminal.output import print_line


@dataclass(frozen=True)
@plain_help
class Export:
    """Copy runs for sharing: their configuration and measurements and, with --weights, their parameters."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run directories, directories of runs (such as a reproduction or a sweep), or archives."""
    out: Path
    """The directory to copy the runs and their references to, or an archive, FILE.zip."""
    weights: bool = False
    """Include the trained parameters (model.safetensors), which `eval` and `serve` need to run the model."""
    model: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    """package.module:Class, for runs of a custom model."""
    task: OptionalClass = None
    """package.module:Class, for runs of a custom task."""

    def run(self) -> None:
        if not self.runs:
            raise InputError("runs", "", "name at least one run directory")
        from recombine.files import check_output, make_output_directory
        from recombine.model.custom import import_model
        from recombine.run.export import check_export, export_runs
        from recombine.run.machine import prepare
        from recombine.storage.archive import SUFFIX
        from recombine.storage.source import require_runs
        from recombine.storage.sweep_list import LIST, has_list

        prepare()
        if self.model:
            import_model(self.model)
        if self.task:
            from recombine.task.custom_task import import_task

            import_task(self.task)
        found = {path: require_runs(path) for path in self.runs}
        runs = [run for path in self.runs for run in found[path]]
        # Export the list of a sweep only with the whole sweep; otherwise it would list runs that are missing.
        above = {run.path.parent for path in found for run in found[path] if run.path.resolve() != path.resolve()}
        lists = [parent / LIST for parent in sorted(above) if has_list(parent)]
        check_export(runs, self.out, self.weights, lists)
        if self.out.suffix == SUFFIX:
            check_output("out", self.out, (SUFFIX,))
        else:
            make_output_directory("out", self.out)
        for path in export_runs(runs, self.out, self.weights, lists):
            print_line(str(path))
