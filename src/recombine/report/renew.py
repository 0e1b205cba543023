"""The report while runs go on: written as soon as there is something to show, and again as runs finish."""

import time
from collections.abc import Sequence
from pathlib import Path

from recombine.report.write import write_report

SECONDS_BETWEEN = 60.0


class ReportRenewal:
    """Decides when the report is written anew: the page every minute, the figures when a run has finished."""

    def __init__(self, runs: Sequence[Path], out: Path):
        self.runs, self.out = runs, out
        self.written = 0.0

    def update(self, finished: bool, has_rows: bool) -> None:
        due = has_rows and time.monotonic() - self.written >= SECONDS_BETWEEN
        if finished and not self.written and not has_rows:
            return  # references alone are no picture yet
        if finished or due:
            write_report(self.runs, self.out, figures=finished)
            self.written = time.monotonic()
