"""`recombine report`: figures, verdicts and a page from run directories."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from recombine.cli.arguments import OptionalPath
from recombine.cli.printing import print_json, print_line


@dataclass(frozen=True)
class Report:
    """Figures (PNG, SVG), the verdict on each claim, and one self-contained HTML page, from run directories alone."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run directories, or directories of them."""
    out: OptionalPath = None
    """Where to write; a directory `report` in the first of the directories where it is not given."""
    json: bool = False
    """Print the verdicts as JSON."""
    markdown: bool = False
    """Print scores and verdicts as Markdown."""

    def run(self) -> None:
        from recombine.errors import InputError

        if self.json and self.markdown:
            raise InputError("markdown", True, "with --json there is nothing left to print; leave one of them out")
        if not self.runs:
            raise InputError("runs", "", "name at least one run directory, or a directory of them")
        for path in self.runs:
            if not path.is_dir():
                raise InputError(
                    "runs", str(path), "is a file; name a directory" if path.exists() else "no such directory"
                )
        out = self.out or self.runs[0] / "report"
        if out.exists() and not out.is_dir():
            raise InputError("out", str(out), "is a file; name a directory")
        from recombine.experiment.machine import prepare

        prepare()
        from recombine.report.tables import print_scores, print_verdicts
        from recombine.report.write import write_report

        study, verdicts, page = write_report(self.runs, out)
        if self.json:
            print_json({"page": str(page), "verdicts": [verdict.as_dict() for verdict in verdicts]})
            return
        if self.markdown:
            from recombine.report.markdown import study_markdown

            print_line(study_markdown(study, verdicts))
            return
        from recombine.report.summary import final_scores

        for title, models, references in final_scores(study):
            print_scores(title, models, references)
        print_verdicts(verdicts)
        print_line(f"{page}")
