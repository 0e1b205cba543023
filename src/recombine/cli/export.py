"""`recombine export`: copies runs for sharing, or writes them as one explorable page."""

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
    """Copy runs for sharing: their configuration and measurements and, with --weights, their parameters.

    With --page: write two models, and the story of what they can recombine, as one page for any browser.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run directories, directories of runs (such as a reproduction or a sweep), or archives. With --page: a transformer
    and a hypertransformer; without any, the trained models that are shipped with Recombine."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="OUT")] = None
    """The directory to copy the runs and their references to, or an archive, FILE.zip."""
    page: Annotated[Path | None, tyro.conf.arg(metavar="FILE.html")] = None
    """Write one self-contained page instead: the models run in the browser, without a server."""
    weights: bool = False
    """Include the trained parameters (model.safetensors), which `eval` and `serve` need to run the model."""
    model: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    """package.module:Class, for runs of a custom model."""
    task: OptionalClass = None
    """package.module:Class, for runs of a custom task."""

    def run(self) -> None:
        if (self.out is None) == (self.page is None):
            given = "" if self.out is None else f"{self.out}, {self.page}"
            raise InputError("out", given, "name either --out DIRECTORY (or FILE.zip) or --page FILE.html")
        if self.page is not None:
            self._write_page(self.page)
        elif self.out is not None:
            self._copy(self.out)

    def _write_page(self, page: Path) -> None:
        from recombine.files import check_output
        from recombine.story.pack import demo_story, pack_pair
        from recombine.story.static_page import write_static_page

        if self.weights or self.model:
            field, value = ("weights", True) if self.weights else ("model", self.model)
            raise InputError(field, value, "is for --out; a page always contains the parameters of our own models")
        check_output("page", page, (".html",))
        if not self.runs:
            write_static_page(page, demo_story())
        else:
            from recombine.run.load import load_model
            from recombine.run.machine import prepare
            from recombine.storage.source import require_runs
            from recombine.story.pair import measure_facts, story_pair

            prepare()
            sources = [run for path in self.runs for run in require_runs(path)]
            if len(sources) != 2:
                raise InputError("runs", len(sources), "a page shows two runs: a transformer and a hypertransformer")
            pair = story_pair([load_model(source.path) for source in sources])
            write_static_page(page, pack_pair(pair, measure_facts(pair)))
        print_line(str(page))

    def _copy(self, out: Path) -> None:
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
        check_export(runs, out, self.weights, lists)
        if out.suffix == SUFFIX:
            check_output("out", out, (SUFFIX,))
        else:
            make_output_directory("out", out)
        for path in export_runs(runs, out, self.weights, lists):
            print_line(str(path))
