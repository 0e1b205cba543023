"""The report while runs go on: written as soon as there is something to show."""

import time
from collections.abc import Sequence
from pathlib import Path

from recombine.experiment.job import Event
from recombine.report.write import write_report

SECONDS_BETWEEN = 60.0


class ReportRenewal:
    """Writes the page when a run has finished, and every minute; drawing the figures' files is left to the end."""

    def __init__(self, runs: Sequence[Path], out: Path):
        self.runs, self.out = runs, out
        self.written: float | None = None

    def watch(self, event: Event) -> None:
        first = self.written is None
        if first and not event.data.get("row"):
            return  # references alone are no picture
        if first or event.kind == "done" or time.monotonic() - (self.written or 0.0) >= SECONDS_BETWEEN:
            self.written = time.monotonic()
            write_report(self.runs, self.out, figures=False)
