"""`recombine report`: makes figures, verdicts and a page from run directories."""

import os
from dataclasses import dataclass
from pathlib import Path

import tyro

from recombine.cli.arguments import OptionalPath, plain_help
from recombine.terminal.output import note, print_csv, print_json, print_line


@dataclass(frozen=True)
@plain_help
class Report:
    """Make figures (PNG, SVG), a verdict on each claim, and a self-contained HTML page from run directories."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run directories, directories of runs, or archives."""
    out: OptionalPath = None
    """The output directory. Default: `report` in the first of the directories, or beside the archive."""
    json: bool = False
    """Print the verdicts as JSON."""
    markdown: bool = False
    """Print scores and verdicts as Markdown."""
    csv: bool = False
    """Print the final scores of every run and reference as CSV: a row for each split."""

    def run(self) -> None:
        from recombine.errors import InputError
        from recombine.storage.source import require_runs

        if self.json + self.markdown + self.csv > 1:
            name = "markdown" if self.markdown else "csv"
            raise InputError(name, True, "only one of --json, --markdown and --csv; leave the others out")
        if not self.runs:
            raise InputError("runs", "", "name at least one run directory, or a directory of them")
        for path in self.runs:
            require_runs(path)
        out = self.out or default_report(self.runs[0])
        check_place(out)
        from recombine.run.machine import prepare

        prepare()
        from recombine.page.write_report import write_report
        from recombine.study.collect import study_notes
        from recombine.terminal.tables import print_scores, print_verdicts

        study, verdicts, page = write_report(self.runs, out)
        notes = study_notes(study)
        for text in notes:
            note(text)
        if self.json:
            print_json({"page": str(page), "verdicts": verdicts, "notes": notes})
            return
        if self.csv:
            from recombine.notebook.frame import final_rows

            print_csv(row for run in study.runs for row in final_rows(run))
            return
        if self.markdown:
            from recombine.terminal.markdown import study_markdown

            print_line(study_markdown(study, verdicts))
            return
        from recombine.study.summary import final_scores

        for scores in final_scores(study):
            print_scores(scores)
        print_verdicts(verdicts)
        print_line(f"{page}")


def default_report(runs: Path) -> Path:
    """The default output directory: `report` in the directory of the runs, or beside the archive."""
    from recombine.storage.archive import split_path

    inside = None if runs.is_dir() else split_path(runs)
    return (runs if inside is None else inside[0].parent) / "report"


def check_place(out: Path) -> None:
    """Refuse an output directory that cannot be written, before any run is read."""
    from recombine.errors import InputError
    from recombine.files import check_name

    check_name("out", out)
    there = out
    while not there.exists():
        there = there.parent
    if not there.is_dir():
        what = "is a file; name a directory" if there == out else f"{str(there)!r} is a file"
        raise InputError("out", str(out), what)
    if not os.access(there, os.W_OK):
        raise InputError("out", str(out), f"the directory {str(there)!r} cannot be written to")
