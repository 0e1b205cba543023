"""Many jobs with their progress on stderr: what `reproduce` and `sweep` have in common."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recombine.cli.executor import Executor
    from recombine.config import Config
    from recombine.experiment.interrupt import StopRequest
    from recombine.experiment.job import Event, Job


def headline(wanted: "Mapping[str, Config]", where: "Executor", out: Path) -> str:
    """How many runs, how many at a time, and where."""
    from recombine.experiment.rundir import is_done

    done = sum(is_done(out / name) for name in wanted)
    return f"{len(wanted)} runs{f', {done} of them done,' if done else ','} {where.pace}, in {out}"


def work_off(
    jobs: "list[Job]",
    where: "Executor",
    out: Path,
    wanted: "Mapping[str, Config]",
    request: "StopRequest",
    watch: "Callable[[Event], None]" = lambda event: None,
) -> dict[str, str]:
    """See the jobs through; the errors of those that failed. Whatever `watch` raises ends no training."""
    from recombine.report.jobs import JobsDisplay

    if where.together > 1:
        from recombine.experiment.plan import put_together

        jobs = put_together(jobs, wanted, where.together)
    failed: dict[str, str] = {}
    totals = {job.name: _num_steps(job, wanted) for job in jobs}
    with JobsDisplay(totals, where.at_a_time) as display:
        display.best = best_before([name for name in wanted if name not in totals], out)
        for event in where.carry_out(jobs, out, request):
            display.update(event.job.name, event.kind, event.data)
            if event.kind == "failed":
                failed[event.job.name] = event.data["error"]
            elif event.kind == "interrupted" and not request.requested():
                failed[event.job.name] = "its worker was ended by a signal"
            try:
                watch(event)
            except Exception as error:  # at the end it is an error
                display.say(f"the report could not be written: {error}")
    return failed


def best_before(done: Sequence[str], out: Path) -> tuple[float, str] | None:
    """Of runs that were done before, and its R² on held-out masks."""
    from recombine.experiment.rundir import last_row

    found = [((last_row(out / name).get("ood") or {}).get("r2"), name) for name in done]
    return max(((r2, name) for r2, name in found if r2 is not None), default=None)


def _num_steps(job: "Job", wanted: "Mapping[str, Config]") -> int | None:
    config = wanted.get(Path(job.request["path"]).name)
    return config.optimizer.num_steps if config and job.request["kind"] == "train" else None
