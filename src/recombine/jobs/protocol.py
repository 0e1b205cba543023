"""The messages between coordinator and worker: a job, and the news that comes back. Both are JSON."""

from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from recombine.errors import InputError, InUse, describe
from recombine.record.codec import Record
from recombine.record.score import MetricsRow

MOST_SHAPES = 8  # shapes whose compiled programs a process keeps: each takes some 70 MB
ERRORS = (InputError, OSError, ArithmeticError, MemoryError)  # errors that end a job, but not its worker

After = Literal["scorecard", "selection"]
"""The measurements to make when a run is done."""
NewsKind = Literal["started", "progress", "said", "done", "failed", "interrupted"]


class JobPart(Record, frozen=True):
    """One run of a job: its configuration (TOML) and its directory; for references, the directory `references`."""

    config: str
    path: str


class Job(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Train one run, or several in one vmapped program, or compute the references of a seed and support."""

    name: str
    """The name to display."""
    kind: Literal["train", "references"]
    parts: tuple[JobPart, ...]
    custom: str | None = None
    """The class to import, if the model is a custom model."""
    custom_task: str | None = None
    """The class to import, if the task is a custom task."""
    resume_anyway: bool = False
    after: tuple[After, ...] = ()
    shape: str | None = None
    """Equal for runs that use the same compiled programs."""

    @property
    def path(self) -> Path:
        """The directory of the first run."""
        return Path(self.parts[0].path)

    def resolved(self) -> "Job":
        """The same job with absolute paths, for processes in other directories."""
        return self.moved([Path(part.path).resolve() for part in self.parts])

    def moved(self, paths: list[Path]) -> "Job":
        """The same job with its runs in other directories."""
        parts = tuple(JobPart(part.config, str(path)) for part, path in zip(self.parts, paths, strict=True))
        return msgspec.structs.replace(self, parts=parts)


class News(Record, frozen=True, kw_only=True, omit_defaults=True):
    """The progress or the outcome of a job."""

    kind: NewsKind
    step: int | None = None
    loss: float | None = None
    row: MetricsRow | None = None
    """The newest row of metrics."""
    text: str | None = None
    """For `said`."""
    error: str | None = None
    """For `failed`."""
    hopeless: bool = False
    """The job would only fail again, because the error depends on its configuration alone."""
    process_ended: bool = False
    """Whether the worker process itself has ended."""


class JobEvent(NamedTuple):
    """A job, and news of it."""

    job: Job
    news: News


def failure(error: BaseException) -> News:
    """The news that an error ended a job."""
    hopeless = isinstance(error, InputError | ArithmeticError) and not isinstance(error, InUse)
    return News(kind="failed", error=describe(error), hopeless=hopeless)


def retried(job: Job, news: News) -> JobEvent:
    """The news that a job is tried again."""
    return JobEvent(job, News(kind="said", text=f"{news.error or 'the worker was ended'}; trying again"))


def keep_shape(kept: set[str], shape: str) -> set[str]:
    """The shapes whose programs a process has after one more job. When there are too many, it drops all others."""
    return kept | {shape} if shape in kept or len(kept) < MOST_SHAPES else {shape}
