"""Updates the report while its runs are still training."""

import time
from collections.abc import Sequence
from pathlib import Path

from recombine.jobs.protocol import JobEvent
from recombine.page.write_report import write_report

SECONDS_BETWEEN = 60.0


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
