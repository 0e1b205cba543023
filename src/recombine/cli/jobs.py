"""Executes many jobs and shows their progress on stderr, or estimates their time, for `reproduce` and `sweep`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from recombine.terminal.output import note, print_line

if TYPE_CHECKING:
    from recombine.cli.arguments import Executor
    from recombine.config.schema import Config
    from recombine.jobs.estimate import Estimate
    from recombine.jobs.protocol import Job, JobEvent
    from recombine.run.signals import StopSignal

BUSY = 1.3  # below it, others hardly matter


def headline(wanted: "Mapping[str, Config]", where: "Executor", out: Path) -> str:
    """A line that says how many runs there are, how many run at a time, and where they are stored."""
    from recombine.storage.reader import is_done
    from recombine.storage.source import DirectorySource

    done = sum(is_done(DirectorySource(out / name)) for name in wanted)
    return f"{len(wanted)} runs{f', {done} of them done,' if done else ','} {where.pace}, in {out}"


def estimate_jobs(jobs: "list[Job]", where: "Executor") -> "Estimate":
    """The time that the jobs would take on this machine."""
    from recombine.jobs.estimate import estimate
    from recombine.run.machine import available_cores

    return estimate(jobs, where.at_a_time or available_cores(), note)


def print_estimate(
    found: "Estimate", wanted: "Mapping[str, Config]", beside: "Mapping[str, str] | None" = None
) -> None:
    """The time of each job, and of all. `beside` has a word on each run, to print in a column of its own."""
    from recombine.terminal.progress import duration

    names = [*(name for name in found.each if name not in wanted), *wanted]
    width, width_beside = max(map(len, names)), max(map(len, (beside or {"": ""}).values()))
    for name in names:
        seconds = duration(found.each[name]) if name in found.each else "done"
        column = f"  {beside.get(name, ''):<{width_beside}}" if beside else ""
        print_line(f"{name:<{width}}{column}  {seconds:>9}")
    left = sum(name in found.each for name in wanted)
    steps = sum(config.optimizer.num_steps for name, config in wanted.items() if name in found.each)
    what = f"{len(wanted)} runs, {left} to do, {steps:,} steps, {found.workers} at a time"
    compiling = duration(found.compiling / found.workers)
    print_line(f"{what}: about {duration(found.total)} on this machine")
    if found.compiling:
        print_line(f"of that, compiling takes {compiling}; programs that were compiled before take none")
    if found.busy > BUSY:
        print_line(f"other processes use the machine: at the moment it takes {found.busy:.1f} times as long")


def execute_jobs(
    jobs: "list[Job]",
    where: "Executor",
    out: Path,
    wanted: "Mapping[str, Config]",
    stop: "StopSignal",
    watch: "Callable[[JobEvent], None]" = lambda event: None,
) -> dict[str, str]:
    """Execute the jobs, and return the errors of those that failed. An error in `watch` does not stop the jobs."""
    from recombine.jobs.estimate import job_costs
    from recombine.terminal.jobs import JobsDisplay

    if where.vmap > 1:
        from recombine.jobs.plan import put_together

        jobs = put_together(jobs, wanted, where.vmap)
    failed: dict[str, str] = {}
    totals = {job.name: _num_steps(job, wanted) for job in jobs}
    unfinished = {Path(part.path).name for job in jobs for part in job.parts}  # a job may have several runs
    with JobsDisplay(totals, where.at_a_time, job_costs(jobs)) as display:
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
