"""Shows the progress of many jobs: a live table in a terminal, plain lines elsewhere."""

import time
from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from recombine.jobs.protocol import JobEvent, News
from recombine.support.split import TEACHER_SPLITS
from recombine.terminal.progress import Rate, duration

if TYPE_CHECKING:
    from recombine.jobs.estimate import JobCost

SECONDS_BETWEEN_LINES = 10.0


class JobsDisplay:
    """`totals` has the number of steps of each job, or None for a job without steps. `workers` is the number of jobs
    that run at a time, or None if a cluster decides. `costs` are the expected times on a machine of ours: jobs that are
    done tell how long this machine takes in comparison."""

    def __init__(
        self,
        totals: Mapping[str, int | None],
        workers: int | None = None,
        costs: "Mapping[str, JobCost] | None" = None,
    ):
        self.totals, self.workers, self.costs = totals, workers, costs or {}
        self.started: dict[str, float] = {}
        self.spent: dict[str, float] = {}  # the seconds that each job took
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
            self.started[name] = now
            if self.bar is not None and name not in self.bars:  # a job that is tried again has one already
                self.bars[name] = self.bar.add_task(name, total=self.totals[name] or 1, detail="starting")
            elif self.bar is None:
                self.say(f"{name}: started")
        elif news.kind == "progress":
            self._progress(name, news, now)
        elif news.kind == "said":
            self.say(f"{name}: {news.text}")
        else:
            self._ended(name, news, now)
        if self.bar is not None:
            self.bar.update(self.bars[""], completed=len(self.ended), detail=self._overall(now))

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
            self.say(self._overall(now))

    def _ended(self, name: str, news: News, now: float) -> None:
        self.ended[name] = news.kind
        if news.kind == "done":
            self.spent[name] = now - self.started.get(name, now)
        self.running.discard(name)
        if news.kind == "done" and name in self.r2 and (self.best is None or self.r2[name] > self.best[0]):
            self.best = (self.r2[name], name)
        self.latest.pop(name, None)
        if self.bar is not None and name in self.bars:  # a job that never started has no bar
            self.bar.remove_task(self.bars.pop(name))
        self.say(f"{name}: {news.kind}{': ' + news.error if news.error else ''}")

    def _overall(self, now: float) -> str:
        """How many jobs are done, running, waiting and failed; the speed, the remaining time, the best run so far."""
        ends = Counter(self.ended.values())
        waiting = len(self.totals) - len(self.ended) - len(self.running)
        references = sum(steps is None for steps in self.totals.values())
        what = f" (runs: {len(self.totals) - references}, references: {references})" if references else ""
        done = f"{ends['done']} of {len(self.totals)} jobs{what} done"
        parts = [f"{done}, {len(self.running)} running, {waiting} waiting"]
        parts += [f"{ends['failed']} failed"] if ends["failed"] else []
        rates = [rate for name in self.latest if (rate := self.rates[name].per_second)]
        parts += [f"{sum(rates):,.0f} steps/s"] if rates else []
        left = [self._seconds_left(name, now) for name in self.totals if name not in self.ended]
        known = [seconds for seconds in left if seconds is not None]
        if left and len(known) == len(left):
            at_a_time = min(self.workers or len(self.running) or 1, len(left))
            parts.append(f"ETA {duration(max(sum(known) / at_a_time, *known))}")
        if self.best:
            parts.append(f"best R² ood {self.best[0]:.3f} ({self.best[1]})")
        return " · ".join(parts)

    def _seconds_left(self, name: str, now: float) -> float | None:
        """The remaining seconds of a job; None as long as nothing is known about it.

        Steps are expected at the present rate of the job, or at that of the others while it waits. What comes before
        and after them (compiling, examining, references) is expected to take its cost, times the slowness so far.
        """
        cost, slowness = self.costs.get(name), self._slowness()
        after = slowness * sum(cost.after) if cost else 0.0
        rate = self.rates[name].per_second if name in self.rates else None
        if rate and name in self.latest:
            return ((self.totals[name] or 0) - self.latest[name][0]) / rate + after
        if cost is not None:
            expected = slowness * sum(sum(part) for part in cost)
            return max(expected - (now - self.started.get(name, now)), after)
        rates = [rate for other in self.latest if (rate := self.rates[other].per_second)]
        steps = (self.totals[name] or 0) - (self.latest[name][0] if name in self.latest else 0)
        return steps * len(rates) / sum(rates) if rates else None

    def _slowness(self) -> float:
        """How many times their cost the jobs that are done took."""
        done = [name for name in self.spent if name in self.costs]
        expected = sum(sum(part) for name in done for part in self.costs[name])
        return sum(self.spent[name] for name in done) / expected if expected else 1.0
