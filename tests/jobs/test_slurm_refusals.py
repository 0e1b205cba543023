"""SLURM rejects a job on resubmission; tested without SLURM."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from recombine.cli.arguments import Executor
from recombine.errors import InputError
from recombine.jobs.executor import slurm
from recombine.jobs.executor.slurm_queue import QueuedTask
from recombine.jobs.protocol import Job, News
from recombine.run.signals import StopSignal
from tests.jobs.test_executor import train_job


class Pretended:
    """A queue that accepts every job once, lets it fail, and then rejects it a given number of times."""

    refusals = 0

    def __init__(self, *_: Any):
        self.submitted = self.looks = 0

    def find(self, jobs: Sequence[Job]) -> dict[str, QueuedTask]:
        return {}

    def submit(self, jobs: Sequence[Job], others: Collection[str] = ()) -> dict[str, QueuedTask]:
        self.submitted += 1
        if 1 < self.submitted <= 1 + self.refusals:
            raise InputError("executor", "slurm", "SLURM rejected the jobs: no such partition")
        return {f"{self.submitted}_{i}": QueuedTask(job) for i, job in enumerate(jobs)}

    def states(self) -> dict[str, str]:
        self.looks += 1
        assert self.looks < 500, "the coordinator goes on for ever"
        return {}

    def outcome(self, identity: str, task: QueuedTask, states: Mapping[str, str] | None) -> News:
        return News(kind="failed", error="lost") if identity.startswith("1_") else News(kind="done")

    def cancel(self, tasks: Mapping[str, QueuedTask]) -> None:
        pass


@pytest.mark.parametrize(("refusals", "end"), [(2, "done"), (1000, "failed")])
def test_a_job_that_sbatch_does_not_take_has_failed_after_some_tries(
    tmp_path: Path, refusals: int, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "SECONDS_BETWEEN_LOOKS", 0.0)
    monkeypatch.setattr(slurm, "SECONDS_BETWEEN_QUERIES", 0.0)
    monkeypatch.setattr(slurm, "Queue", Pretended)
    monkeypatch.setattr(Pretended, "refusals", refusals)
    jobs = [train_job(tmp_path / f"run{seed}", seed=seed) for seed in range(2)]
    events = []
    for event in slurm.run_jobs_on_slurm(jobs, tmp_path, {}, None, StopSignal(), retries=1):
        events.append(event)
    for job in jobs:
        news = [event.news for event in events if event.job is job]
        assert news[-1].kind == end
        assert [one.kind for one in news].count(end) == 1
        assert any("no such partition" in (one.text or one.error or "") for one in news)


def test_a_dry_run_needs_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for where in (Executor(executor="slurm"), Executor(executor="ray", address="ray://nowhere:1")):
        where.check(tmp_path / "out", dry_run=True)
    with pytest.raises(InputError, match="slurm"):
        Executor(executor="slurm").check(tmp_path / "out")
    with pytest.raises(InputError, match="time"):
        Executor(executor="slurm", slurm=("time=x",)).check(tmp_path / "out", dry_run=True)
