"""A job, which a coordinator gives to a worker, and the news that comes back. Both are JSON."""

from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from recombine.errors import InputError, InUse
from recombine.failure import describe
from recombine.record.codec import Record
from recombine.record.score import MetricsRow

MOST_SHAPES = 8  # whose programs a process keeps: each takes some 70 MB
ERRORS = (InputError, OSError, ArithmeticError, MemoryError)  # what ends a job, and not the process it is in

After = Literal["scorecard", "selection"]
"""What is measured when a run is done."""
NewsKind = Literal["started", "progress", "said", "done", "failed", "interrupted"]


class JobPart(Record, frozen=True):
    """One run of a job: its configuration (TOML) and its directory. For references: the directory `references`."""

    config: str
    path: str


class Job(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Train one run, or several by one vmapped program; or compute the references of some runs."""

    name: str
    """For people to read."""
    kind: Literal["train", "references"]
    parts: tuple[JobPart, ...]
    custom: str | None = None
    """The class that has to be imported, if the model is a custom one."""
    resume_anyway: bool = False
    after: tuple[After, ...] = ()
    shape: str | None = None
    """The same for runs that take the same compiled programs."""

    @property
    def path(self) -> Path:
        """Of the first run."""
        return Path(self.parts[0].path)

    def resolved(self) -> "Job":
        """With absolute paths, for processes that start elsewhere."""
        return self.moved([Path(part.path).resolve() for part in self.parts])

    def moved(self, paths: list[Path]) -> "Job":
        """The same job, its runs in other directories."""
        parts = tuple(JobPart(part.config, str(path)) for part, path in zip(self.parts, paths, strict=True))
        return msgspec.structs.replace(self, parts=parts)


class News(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a job, or how far it is."""

    kind: NewsKind
    step: int | None = None
    loss: float | None = None
    row: MetricsRow | None = None
    """The newest row of metrics."""
    text: str | None = None
    """Of `said`."""
    error: str | None = None
    """Of `failed`."""
    hopeless: bool = False
    """The job would only fail again: it depends on its configuration alone."""
    process_ended: bool = False
    """The worker itself has ended."""


class JobEvent(NamedTuple):
    """News of a job."""

    job: Job
    news: News


def failure(error: BaseException) -> News:
    """The news of an error."""
    hopeless = isinstance(error, InputError | ArithmeticError) and not isinstance(error, InUse)
    return News(kind="failed", error=describe(error), hopeless=hopeless)


def retried(job: Job, news: News) -> JobEvent:
    """The news that a job is tried once more."""
    return JobEvent(job, News(kind="said", text=f"{news.error or 'the worker was ended'}; once more"))


def keep_shape(kept: set[str], shape: str) -> set[str]:
    """The shapes whose programs a process has after one more, if it forgets them all when there are too many."""
    return kept | {shape} if shape in kept or len(kept) < MOST_SHAPES else {shape}
