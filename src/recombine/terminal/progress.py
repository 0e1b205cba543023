"""Shows the progress of one long task: a live bar in a terminal, plain lines elsewhere; rates and durations."""

import time
from collections import deque
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

SECONDS_BETWEEN_LINES = 5.0
NARROW, ROOMY = 60, 120  # columns of a terminal: below, the steps and the ETA alone; above, room for a long bar


class DetailColumn(TextColumn):
    """Text that is cut where the terminal ends, so that the other columns stay whole."""

    def __init__(self, text_format: str):
        super().__init__(text_format, table_column=Column(no_wrap=False))

    def render(self, task: Task) -> Text:
        text = super().render(task)
        text.no_wrap, text.overflow = True, "ellipsis"
        return text


class ProgressDisplay:
    """`with ProgressDisplay('transformer', total) as display: display.update(step, 'loss 0.01')`"""

    def __init__(self, name: str, total: int, unit: str = "steps", first: int = 0):
        self.name, self.total, self.unit = name, total, unit
        self.console = Console(stderr=True, highlight=False)
        self.last_line = time.monotonic()
        self.first, self.rate = first, Rate(first)
        self.bar: Progress | None = None
        self.bar_task = TaskID(0)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            wide = self.console.width >= NARROW
            self.bar = Progress(
                TextColumn("{task.description}"),
                *([BarColumn(bar_width=40 if self.console.width >= ROOMY else 6)] if wide else []),
                TextColumn("{task.completed}/{task.total} · ETA"),
                TimeRemainingColumn(),
                *([DetailColumn("· {task.fields[detail]}")] if wide else []),
                console=self.console,
            )
            self.bar.start()
            self.bar_task = self.bar.add_task(self.name, total=self.total, completed=self.first, detail="compiling")
        else:
            self.console.print(f"{self.name}: {self.first}/{self.total} {self.unit}, compiling", soft_wrap=True)
        return self

    def update(self, done: int, detail: str) -> None:
        now = time.monotonic()
        self.rate.update(done, now)
        rate = self.rate.per_second
        text = f"{detail} · {rate:.1f} {self.unit}/s" if rate else detail
        if self.bar is not None:
            self.bar.update(self.bar_task, completed=done, detail=text)
        elif now - self.last_line >= SECONDS_BETWEEN_LINES or done == self.total:
            self.last_line = now
            remaining = f" · ETA {duration((self.total - done) / rate)}" if rate else ""
            self.console.print(f"{self.name}: {done}/{self.total} {self.unit} · {text}{remaining}", soft_wrap=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()


SECONDS = 60.0  # older measurements are ignored


class Rate:
    """Units of work per second. The time before the first advance is spent compiling, and is not counted."""

    def __init__(self, first: int = 0):
        self.seen: deque[tuple[float, int]] = deque()
        self.first = first

    def update(self, done: int, now: float) -> None:
        if not self.seen and done <= self.first:
            return
        self.seen.append((now, done))
        while len(self.seen) > 2 and now - self.seen[1][0] >= SECONDS:
            self.seen.popleft()

    @property
    def per_second(self) -> float | None:
        """The current rate. None until it is known."""
        if len(self.seen) < 2:
            return None
        (start, before), (now, done) = self.seen[0], self.seen[-1]
        return (done - before) / (now - start) if done > before and now > start else None


def duration(seconds: float) -> str:
    """A duration as text, in seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"
