"""Shows the progress of many jobs: a live table in a terminal, plain lines elsewhere."""

import time
from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from recombine.jobs.protocol import JobEvent, News
from recombine.support.split import TEACHER_SPLITS
from recombine.terminal.speed import Rate, duration

SECONDS_BETWEEN_LINES = 10.0


class JobsDisplay:
    """`totals` has the number of steps of each job, or None for a job without steps. `workers` is the number of jobs
    that run at a time, or None if a cluster decides."""

    def __init__(self, totals: Mapping[str, int | None], workers: int | None = None):
        self.totals, self.workers = totals, workers
        self.console = Console(stderr=True, highlight=False)
        self.last_line = time.monotonic()
        self.running: set[str] = set()
        self.ended: dict[str, str] = {}  # done, failed or interrupted
        self.best: tuple[float, str] | None = None
        self.rates: dict[str, Rate] = {}
        self.r2: dict[str, float] = {}  # the final R² out of distribution, by job
        self.latest: dict[str, tuple[int, str]] = {}  # the step and the text of each running job
        self.bar: Progress | None = None
        self.bars: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            # The name of a job above its progress: side by side, they would be cut off on most terminals.
            words = Column(ratio=1, overflow="fold")
            text = TextColumn("{task.description}\n  {task.fields[detail]}", markup=False, table_column=words)
            self.bar = Progress(BarColumn(bar_width=12), text, console=self.console, expand=True)
            self.bar.start()
            self.bars[""] = self.bar.add_task("all", total=max(1, len(self.totals)), detail="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def say(self, text: str) -> None:
        (self.bar.console if self.bar else self.console).print(text, soft_wrap=True, markup=False)

    def update(self, event: JobEvent) -> None:
        now, name, news = time.monotonic(), event.job.name, event.news
        if news.kind == "started":
            self.running.add(name)
            if self.bar is not None and name not in self.bars:  # a job that is tried again has one already
                self.bars[name] = self.bar.add_task(name, total=self.totals[name] or 1, detail="starting")
            elif self.bar is None:
                self.say(f"{name}: started")
        elif news.kind == "progress":
            self._progress(name, news, now)
        elif news.kind == "said":
            self.say(f"{name}: {news.text}")
        else:
            self._ended(name, news)
        if self.bar is not None:
            self.bar.update(self.bars[""], completed=len(self.ended), detail=self._overall())

    def _progress(self, name: str, news: News, now: float) -> None:
        step, row = news.step or 0, news.row
        rates = self.rates.setdefault(name, Rate(step))
        rates.update(step, now)
        rate = rates.per_second
        parts = [f"{step:,}/{self.totals[name] or 0:,}"]
        if news.loss is not None:
            parts.append(f"loss {news.loss:.4f}")
        found = {} if row is None else {split: score.r2 for split, score in row.splits().items()}
        if row is not None and "ood" in found and row.step == self.totals[name]:
            self.r2[name] = found["ood"]
        parts += [f"R² {split} {found[split]:.3f}" for split in TEACHER_SPLITS if split in found]
        if rate:
            parts.append(f"{rate:.1f} steps/s · ETA {duration(((self.totals[name] or 0) - step) / rate)}")
        self.latest[name] = (step, " · ".join(parts))
        if self.bar is not None:
            self.bar.update(self.bars[name], completed=step, detail=self.latest[name][1])
        elif now - self.last_line >= SECONDS_BETWEEN_LINES:
            self.last_line = now
            for running, (_, detail) in self.latest.items():
                self.say(f"{running}: {detail}")
            self.say(self._overall())

    def _ended(self, name: str, news: News) -> None:
        self.ended[name] = news.kind
        self.running.discard(name)
        if news.kind == "done" and name in self.r2 and (self.best is None or self.r2[name] > self.best[0]):
            self.best = (self.r2[name], name)
        self.latest.pop(name, None)
        if self.bar is not None and name in self.bars:  # a job that never started has no bar
            self.bar.remove_task(self.bars.pop(name))
        self.say(f"{name}: {news.kind}{': ' + news.error if news.error else ''}")

    def _overall(self) -> str:
        """How many jobs are done, running, waiting and failed; the speed, the remaining time, and the best run so far.

        The remaining time assumes that waiting runs are as fast as the running ones.
        """
        ends = Counter(self.ended.values())
        waiting = len(self.totals) - len(self.ended) - len(self.running)
        parts = [f"{ends['done']} of {len(self.totals)} jobs done, {len(self.running)} running, {waiting} waiting"]
        parts += [f"{ends['failed']} failed"] if ends["failed"] else []
        rates = [rate for name in self.latest if (rate := self.rates[name].per_second)]
        left = {name: steps for name, steps in self.totals.items() if steps and name not in self.ended}
        if rates:
            steps = sum(steps - (self.latest[name][0] if name in self.latest else 0) for name, steps in left.items())
            seconds = steps * len(rates) / (sum(rates) * min(self.workers or len(rates), len(left)))
            parts += [f"{sum(rates):,.0f} steps/s", f"ETA {duration(seconds)}"]
        if self.best:
            parts.append(f"best R² ood {self.best[0]:.3f} ({self.best[1]})")
        return " · ".join(parts)
