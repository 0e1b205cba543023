"""SLURM: a cluster on this machine, with tasks taken away, gives the same bits; what it cannot take is refused."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from recombine.cli.arguments import Executor
from recombine.cli.main import main
from recombine.errors import InputError
from recombine.jobs.executor import slurm, slurm_queue, slurm_task
from recombine.jobs.executor.local import run_jobs
from recombine.jobs.executor.slurm import run_jobs_on_slurm
from recombine.jobs.executor.slurm_queue import Queue, QueuedTask, slurm_options
from recombine.jobs.protocol import Job, News
from recombine.run.signals import StopSignal
from tests.jobs.clusters import PREEMPTING, slurm_cluster
from tests.jobs.test_executor import status_process, train_job
from tests.reliability.small_run import result

LONG = {"optimizer": {"num_steps": 12_000}, "measure": {"snapshots": 40}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    pytest.importorskip("submitit", reason="submitit is not installed: pip install 'recombine[slurm]'")
    with slurm_cluster(tmp_path_factory.mktemp("slurm")):
        yield


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (slurm, slurm_queue, slurm_task):
        monkeypatch.setattr(module, "SECONDS_BETWEEN_LOOKS", 0.1)
    monkeypatch.setattr(slurm, "SECONDS_BETWEEN_QUERIES", 0.5)


def jobs_in(place: Path, count: int, **changes: Any) -> list[Job]:
    return [train_job(place / f"run{seed}", seed=seed, **changes) for seed in range(count)]


def number_of(out: Path, name: str) -> str:
    """The id of a task in the queue."""
    entries = [json.loads(line) for line in (out / "slurm" / "tasks.jsonl").read_text().splitlines()]
    return next(entry["id"] for entry in reversed(entries) if entry["name"] == name)


def starts(run: Path) -> list[int]:
    """The steps at which a run was started or resumed."""
    return [start["step"] for start in json.loads((run / "env.json").read_text())["starts"]]


@pytest.mark.usefixtures("cluster")
def test_the_same_bits_though_tasks_are_taken_away(tmp_path: Path) -> None:
    """One task is told that its time is up, as in a preemption; the process of the other is killed."""
    here, there = tmp_path / "here", tmp_path / "there"
    list(run_jobs(jobs_in(here, 2, **LONG), 2, StopSignal()))
    taken: set[str] = set()
    events = []
    for event in run_jobs_on_slurm(jobs_in(there, 2, **LONG), there, slurm_options([]), None, StopSignal(), retries=1):
        events.append((event.job.name, event.news.kind))
        if event.news.kind == "progress" and (event.news.step or 0) > 0 and event.job.name not in taken:
            taken.add(event.job.name)
            if event.job.name == "run0":
                subprocess.run(["scancel", "--signal=USR2", number_of(there, "run0")], check=True)
            else:
                os.kill(status_process(there / "run1"), signal.SIGKILL)
    assert taken == {"run0", "run1"}
    assert [events.count((name, "done")) for name in ("run0", "run1")] == [1, 1]
    assert ("run1", "said") in events, "that it is tried again"
    assert ("run0", "said") not in events, "SLURM itself queues it again"
    for run in ("run0", "run1"):
        assert len(starts(there / run)) == 2
        assert result(there / run) == result(here / run)


@pytest.mark.usefixtures("cluster")
@pytest.mark.slow
def test_a_killed_coordinator_leaves_its_tasks_to_the_next(tmp_path: Path) -> None:
    grid = '[grid]\n"model.embed_dim" = [8]\n[optimizer]\nnum_steps = 6_000\n[measure]\nepisodes = 8\nsnapshots = 60\n'
    (tmp_path / "grid.toml").write_text(grid)
    command = [sys.executable, "-m", "recombine", "sweep", "--grid", str(tmp_path / "grid.toml"), "--preset", "smoke"]
    command += ["--seeds", "1", "--out", str(tmp_path / "sweep"), "--executor", "slurm", "--slurm", "time=30"]
    run = tmp_path / "sweep" / "transformer-embed_dim=8-seed0"
    first = subprocess.Popen(command, stderr=subprocess.PIPE)
    end = time.monotonic() + 120
    while not (run / "metrics.jsonl").is_file():
        assert first.poll() is None, first.communicate()[1]
        assert time.monotonic() < end
        time.sleep(0.05)
    first.kill()
    first.communicate()
    second = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert second.returncode == 0, second.stderr
    assert f"{run.name}: already in the queue" in second.stderr
    assert json.loads((run / "status.json").read_text())["state"] == "done"
    assert starts(run) == [0], "it was never interrupted"


@pytest.mark.usefixtures("cluster")
def test_a_coordinator_that_is_asked_to_stop_takes_its_tasks_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs one task at a time, as requested, although there are two cores and two arrays."""
    monkeypatch.setattr(slurm_queue, "MOST_IN_ARRAY", 2)
    request = StopSignal()
    kinds = []
    jobs = jobs_in(tmp_path, 3, optimizer={"num_steps": 1_000_000}, measure={"snapshots": 2_000})
    for event in run_jobs_on_slurm(jobs, tmp_path, slurm_options([]), 1, request, retries=1):
        kinds.append(event.news.kind)
        if event.news.kind == "progress" and (event.news.step or 0) > 0:
            states = subprocess.run(["squeue", "--noheader", "--array", "--format=%T"], capture_output=True, text=True)
            assert sorted(states.stdout.split()) == ["PENDING", "PENDING", "RUNNING"]
            request.signum = signal.SIGTERM
    assert kinds.count("interrupted") == 3
    assert "said" not in kinds
    queued = subprocess.run(["squeue", "--noheader"], capture_output=True, text=True, check=True).stdout
    assert queued == ""
    status = json.loads((tmp_path / "run0" / "status.json").read_text())
    assert status["state"] == "interrupted"


@pytest.mark.slow
def test_a_preempted_task_is_queued_again_by_slurm(tmp_path: Path) -> None:
    """During the grace time it saves and keeps running, so the preemption does not count as a failure."""
    pytest.importorskip("submitit", reason="submitit is not installed: pip install 'recombine[slurm]'")
    (tmp_path / "cluster").mkdir()
    out, kinds = tmp_path / "out", []
    jobs = jobs_in(out, 1, optimizer={"num_steps": 40_000}, measure={"snapshots": 100})
    with slurm_cluster(tmp_path / "cluster", PREEMPTING):
        for event in run_jobs_on_slurm(jobs, out, slurm_options(["partition=low"]), None, StopSignal(), retries=0):
            if event.news.kind == "progress" and (event.news.step or 0) > 0 and "preempt" not in kinds:
                kinds.append("preempt")
                other = ["sbatch", "-p", "high", "-c", "2", "-o", "/dev/null", "--wrap", "sleep 1"]
                subprocess.run(other, check=True, capture_output=True)
            kinds.append(event.news.kind)
    assert kinds[-1] == "done"
    assert "said" not in kinds
    assert len(starts(out / "run0")) == 2


@pytest.mark.usefixtures("cluster")
def test_what_slurm_refuses_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If possible, it is refused before anything is written. Jobs that may only have to wait are not refused."""
    grid, out = tmp_path / "grid.toml", tmp_path / "out"
    grid.write_text('[grid]\n"model.embed_dim" = [8]\n')
    command = ["sweep", "--grid", str(grid), "--preset", "smoke", "--out", str(out), "--executor", "slurm", "--slurm"]
    for option, complaint in (("partition=nowhere", "invalid partition"), ("nonsense=1", "unrecognized option")):
        assert main([*command, option]) == 2
        assert complaint in capsys.readouterr().err
    assert not out.exists()
    assert "not available" in (Queue(tmp_path, slurm_options(["cpus-per-task=64"]), None).check() or "")
    assert Queue(tmp_path, slurm_options(["time=60"]), 2).check() is None
    events = run_jobs_on_slurm(jobs_in(tmp_path, 1), tmp_path, slurm_options(["mem=9T"]), None, StopSignal(), 1)
    with pytest.raises(InputError, match=r"SLURM rejected the jobs: .*Memory"), closing(events):
        next(events)


def test_options() -> None:
    assert slurm_options([]) == {"time": 60}
    words = ["time=120", "mem=4G", "cpus_per_task=2", "reservation=mine=1"]
    assert slurm_options(words) == {"time": 120, "mem": "4G", "cpus-per-task": 2, "reservation": "mine=1"}
    assert slurm_options(["exclusive=true"])["exclusive"] is True
    words = ["partition", "partition=", "=x", "time=1:00", "time=4", "time=true", "Time=9", "a b=1"]
    for word in [*words, "array=3", "job_name=x", "ntasks=2", "clusters=x"]:
        with pytest.raises(InputError, match=r"^slurm = "):
            slurm_options([word])


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
