"""Ray: a cluster of two nodes on this machine, with killed processes, gives the same bits as local execution."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recombine.errors import Failed
from recombine.jobs.executor.local import run_jobs
from recombine.jobs.protocol import Job, JobEvent, News
from recombine.run.signals import StopSignal
from tests.jobs.clusters import ray_cluster
from tests.jobs.test_executor import train_job
from tests.reliability.small_run import result

pytest.importorskip("ray", reason="ray is not installed: pip install 'recombine[ray]'")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")  # Ray's own


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Two nodes of one core each."""
    with ray_cluster() as found:
        yield found


def metrics(run: Path) -> bytes:
    return (run / "metrics.jsonl").read_bytes()


def jobs_in(place: Path, count: int, **changes: Any) -> list[Job]:
    return [train_job(place / f"run{seed}", seed=seed, **changes) for seed in range(count)]


def on_ray(jobs: list[Job], out: Path, address: str, signum: signal.Signals, retries: int) -> list[JobEvent]:
    """All events of the jobs. The process of the first job that makes progress is sent the signal."""
    from recombine.jobs.executor.ray import run_jobs_on_ray

    events, sent = [], False
    for event in run_jobs_on_ray(jobs, out, address, None, StopSignal(), retries):
        events.append(event)
        if event.news.kind == "progress" and (event.news.step or 0) > 0 and not sent:
            sent = True
            run = event.job.path
            os.kill(json.loads((run / "status.json").read_text())["process"], signum)
    assert sent
    return events


CHANGES = {"optimizer": {"num_steps": 3_000}, "measure": {"snapshots": 10}}


def test_the_same_bits_as_on_this_machine_though_a_process_is_killed(address: str, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    list(run_jobs(jobs_in(here, 2, **CHANGES), 2, StopSignal()))
    events = on_ray(jobs_in(there, 2, **CHANGES), there, address, signal.SIGKILL, retries=2)
    assert [event.news.kind for event in events].count("done") == 2
    for seed in range(2):
        assert metrics(here / f"run{seed}") == metrics(there / f"run{seed}")


@pytest.mark.slow
def test_a_process_that_is_told_to_leave_is_tried_once_more(address: str, tmp_path: Path) -> None:
    """This happens when its node is shut down. The job resumes from what it saved, and does not start again."""
    here, there = tmp_path / "here", tmp_path / "there"
    list(run_jobs(jobs_in(here, 1, **CHANGES), 1, StopSignal()))
    events = on_ray(jobs_in(there, 1, **CHANGES), there, address, signal.SIGTERM, retries=1)
    assert "the worker was ended; trying again" in [event.news.text for event in events]
    assert events[-1].news.kind == "done"
    starts = [start["step"] for start in json.loads((there / "run0" / "env.json").read_text())["starts"]]
    assert len(starts) == 2
    assert starts[1] > 0
    assert metrics(here / "run0") == metrics(there / "run0")


@pytest.mark.slow
def test_without_a_shared_directory_runs_are_fetched(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes do not find the marker file, so they work in their own cache."""
    from recombine.jobs.executor import ray as executor

    monkeypatch.setattr(executor, "_mark", lambda out: tmp_path / "nowhere")
    here, there = tmp_path / "here", tmp_path / "there"
    list(run_jobs(jobs_in(here, 1, after=["selection"]), 1, StopSignal()))
    jobs = jobs_in(there, 1, after=["selection"])
    kinds = [e.news.kind for e in executor.run_jobs_on_ray(jobs, there, address, None, StopSignal(), retries=0)]
    assert kinds[-1] == "done"
    assert metrics(here / "run0") == metrics(there / "run0")
    assert result(there / "run0") == result(here / "run0"), "the checkpoint came, too"
    assert (there / "run0" / "selection.json").read_bytes() == (here / "run0" / "selection.json").read_bytes()


def test_a_ray_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray may fail to start on a busy machine: that gives one line, and no traceback."""
    from recombine.jobs.executor import ray

    class Slow:
        @staticmethod
        def init(**_: Any) -> None:
            raise Exception("The current node timed out\nduring startup.")

    monkeypatch.setattr(ray, "check_ray", lambda: Slow)
    with pytest.raises(Failed, match="Ray did not start on this machine: The current node timed out during startup"):
        next(ray.run_jobs_on_ray([], tmp_path, None, None, StopSignal(), 0))


def test_what_a_killed_coordinator_left_is_removed(tmp_path: Path) -> None:
    from recombine.jobs.executor.ray import _mark

    first, second = _mark(tmp_path), _mark(tmp_path)
    assert second.is_file()
    assert not first.exists()


def test_a_directory_in_which_files_come_and_go_is_read_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old checkpoint is removed after the directory was listed and before the file was read."""
    from recombine.jobs.executor import ray

    for name in ("step-1", "step-2"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
        (tmp_path / "checkpoints" / name / "state").write_text(name)
    read_bytes = Path.read_bytes

    def removed_first(path: Path) -> bytes:
        if path.parent.name == "step-1":
            path.unlink()
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", removed_first)
    assert ray._read(tmp_path) == {"checkpoints/step-2/state": b"step-2"}
    assert ray._read(tmp_path / "nowhere") == {}


class PretendedRay:
    """A stand-in for Ray: each task ends as `ends` says, and objects that are put are counted."""

    def __init__(self, ends: list[Any]):
        import ray

        self.exceptions, self.ends, self.given, self.put_in, self.options = ray.exceptions, ends, [], 0, {}

    def remote(self, **options: Any) -> Any:
        self.options |= options
        return lambda made: SimpleNamespace(remote=self._submit)

    def _submit(self, *arguments: Any) -> Any:
        if arguments:
            self.given.append(arguments[3])
            return len(self.given)
        return SimpleNamespace(take=SimpleNamespace(remote=list))

    def put(self, value: Any) -> Any:
        self.put_in += 1
        return value

    def wait(self, references: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return references, []

    def get(self, reference: Any, **_: Any) -> Any:
        if isinstance(reference, list):
            return reference
        end = self.ends[min(reference, len(self.ends)) - 1]
        if isinstance(end, Exception):
            raise end
        return end, {}

    def cancel(self, _: Any) -> None: ...

    def shutdown(self) -> None: ...


def pretend(
    ends: list[Any], out: Path, retries: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[PretendedRay, list[str]]:
    from recombine.jobs.executor import ray as executor

    pretended = PretendedRay(ends)
    monkeypatch.setattr(executor, "_start", lambda address: pretended)
    (out / "run0").mkdir(parents=True)
    (out / "run0" / "config.toml").write_text("")
    events = executor.run_jobs_on_ray(jobs_in(out, 1), out, None, 1, StopSignal(), retries)
    return pretended, [event.news.kind for event in events]


@pytest.mark.parametrize("retries", [0, 2])
def test_a_process_that_dies_every_time_is_tried_a_bounded_number_of_times(
    tmp_path: Path, retries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only our own retries count; Ray's are turned off."""
    import ray

    pretended, kinds = pretend([ray.exceptions.WorkerCrashedError()], tmp_path, retries, monkeypatch)
    assert len(pretended.given) == 1 + retries
    assert kinds[-1] == "failed"
    assert pretended.options["max_retries"] == 0


def test_files_are_sent_to_a_node_that_lacks_them_and_to_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recombine.jobs.executor.ray import NEEDS_FILES

    done = News(kind="done")
    pretended, kinds = pretend([done], tmp_path / "shared", 0, monkeypatch)
    assert (kinds, pretended.put_in) == (["done"], 0)
    pretended, kinds = pretend([News(kind="interrupted", text=NEEDS_FILES), done], tmp_path / "apart", 0, monkeypatch)
    assert (kinds, pretended.put_in) == (["done"], 1)
    assert pretended.given == [[], [{"config.toml": b""}]]
