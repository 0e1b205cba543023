"""Executes many jobs and shows their progress on stderr, for `reproduce` and `sweep`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recombine.cli.arguments import Executor
    from recombine.config.schema import Config
    from recombine.jobs.protocol import Job, JobEvent
    from recombine.run.signals import StopSignal


def headline(wanted: "Mapping[str, Config]", where: "Executor", out: Path) -> str:
    """A line that says how many runs there are, how many run at a time, and where they are stored."""
    from recombine.storage.reader import is_done
    from recombine.storage.source import DirectorySource

    done = sum(is_done(DirectorySource(out / name)) for name in wanted)
    return f"{len(wanted)} runs{f', {done} of them done,' if done else ','} {where.pace}, in {out}"


def execute_jobs(
    jobs: "list[Job]",
    where: "Executor",
    out: Path,
    wanted: "Mapping[str, Config]",
    stop: "StopSignal",
    watch: "Callable[[JobEvent], None]" = lambda event: None,
) -> dict[str, str]:
    """Execute the jobs, and return the errors of those that failed. An error in `watch` does not stop the jobs."""
    from recombine.terminal.jobs import JobsDisplay

    if where.vmap > 1:
        from recombine.jobs.plan import put_together

        jobs = put_together(jobs, wanted, where.vmap)
    failed: dict[str, str] = {}
    totals = {job.name: _num_steps(job, wanted) for job in jobs}
    unfinished = {Path(part.path).name for job in jobs for part in job.parts}  # a job may have several runs
    with JobsDisplay(totals, where.at_a_time) as display:
        display.best = best_before([name for name in wanted if name not in unfinished], out)
        for event in where.execute(jobs, out, stop):
            display.update(event)
            if event.news.kind == "failed":
                failed[event.job.name] = event.news.error or "failed"
            elif event.news.kind == "interrupted" and not stop.requested():
                failed[event.job.name] = "its worker was ended by a signal"
            try:
                watch(event)
            except Exception as error:  # the report is written again at the end, where an error is raised
                display.say(f"the report could not be written: {error}")
    return failed


def best_before(done: Sequence[str], out: Path) -> tuple[float, str] | None:
    """The best R² on held-out masks among runs that were done before, and the name of the run."""
    from recombine.storage.reader import last_row
    from recombine.storage.source import DirectorySource

    found = []
    for name in done:
        row = last_row(DirectorySource(out / name))
        if row is not None and row.ood is not None:
            found.append((row.ood.r2, name))
    return max(found, default=None)


def _num_steps(job: "Job", wanted: "Mapping[str, Config]") -> int | None:
    config = wanted.get(job.path.name)
    return config.optimizer.num_steps if config and job.kind == "train" else None
