"""Writes the report of a study: figures, verdicts and the page, in one directory; also while runs still train."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from recombine.figure.compose import write_figures
from recombine.files import make_output_directory, replace_file
from recombine.jobs.protocol import JobEvent
from recombine.page.report import write_page
from recombine.record.codec import plain
from recombine.study.collect import Study, collect
from recombine.study.verdict import Verdict, judge

PAGE, VERDICTS = "index.html", "verdicts.json"
SECONDS_BETWEEN = 60.0  # of a report of runs that still train


def write_report(runs: Sequence[Path], out: Path, figures: bool = True) -> tuple[Study, tuple[Verdict, ...], Path]:
    """Write the report from run directories alone. Returns the study, the verdicts and the path of the page."""
    study = collect(runs)
    verdicts = judge(study)
    make_output_directory("out", out)
    replace_file(out / VERDICTS, _json([plain(verdict) for verdict in verdicts]))
    write_page(study, verdicts, out / PAGE)
    if figures:
        write_figures(study, out)
    return study, verdicts, out / PAGE


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


class LiveReport:
    """Writes the page when a run has finished, and every minute. The figure files are drawn only at the end."""

    def __init__(self, runs: Sequence[Path], out: Path):
        self.runs, self.out = runs, out
        self.written: float | None = None

    def watch(self, event: JobEvent) -> None:
        first = self.written is None
        if first and event.news.row is None:
            return  # no run has been measured yet
        if first or event.news.kind == "done" or time.monotonic() - (self.written or 0.0) >= SECONDS_BETWEEN:
            self.written = time.monotonic()
            write_report(self.runs, self.out, figures=False)
