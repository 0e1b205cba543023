"""The local executor: its workers, their devices, and what they say."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path

import pytest

from recombine.cli.arguments import Executor
from recombine.config.preset import preset_config
from recombine.config.toml import override, write_toml
from recombine.errors import InputError
from recombine.jobs.executor import local
from recombine.jobs.executor.local import least_used, next_job, run_jobs
from recombine.jobs.protocol import MOST_SHAPES, After, Job, JobPart, keep_shape
from recombine.run import machine
from recombine.run.process import python_command
from recombine.run.signals import StopSignal
from recombine.storage.writer import RunDirectory
from tests.reliability.small_run import small_config, write_model


def train_job(path: Path, after: Sequence[After] = (), **changes) -> Job:
    part = JobPart(write_toml(small_config(**changes)), str(path))
    return Job(name=path.name, kind="train", parts=(part,), after=tuple(after))


def test_a_failing_job_does_not_stop_the_others(tmp_path: Path) -> None:
    bad = Job(name="bad", kind="train", parts=(JobPart("nonsense = 1", str(tmp_path / "bad")),))
    good = train_job(tmp_path / "good", after=["scorecard", "selection"])
    events = list(run_jobs([bad, good], 1, StopSignal()))
    ends = {event.job.name: event.news for event in events if event.news.kind in ("done", "failed")}
    assert ends["bad"].kind == "failed"
    assert "nonsense" in (ends["bad"].error or "")
    assert ends["good"].kind == "done"
    assert (tmp_path / "good" / "scorecard.json").is_file()
    assert (tmp_path / "good" / "selection.json").is_file()


@pytest.mark.parametrize("signum", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_killed_worker_costs_no_job(tmp_path: Path, signum: signal.Signals) -> None:
    job = train_job(tmp_path / "run", optimizer={"num_steps": 6_000}, measure={"snapshots": 20})
    killed, kinds = False, []
    for event in run_jobs([job], 1, StopSignal()):
        kinds.append(event.news.kind)
        if event.news.kind == "progress" and (event.news.step or 0) > 0 and not killed:
            killed = True
            os.kill(status_process(tmp_path / "run"), signum)
    assert killed
    assert kinds.count("started") == 2
    assert kinds[-1] == "done"


def test_a_worker_that_is_interrupted_while_it_trains_exits_in_order(tmp_path: Path) -> None:
    """Its stdin is still open then, and a thread of it is reading there."""
    job = train_job(tmp_path / "run", optimizer={"num_steps": 1_000_000}, measure={"snapshots": 20})
    stop, news = StopSignal(), []
    for event in run_jobs([job], 1, stop):
        news.append(event.news)
        if event.news.kind == "progress" and (event.news.step or 0) > 0:
            stop.signum = signal.SIGINT
    assert (news[-1].kind, news[-1].error) == ("interrupted", None)
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "interrupted"


@pytest.mark.slow
def test_a_process_that_outlives_a_killed_worker_costs_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's model forked it, and it has the worker's stderr: nobody waits for that to end."""
    code = "import os, time\ndef leave():\n    time.sleep(600)\n    os._exit(0)\n"
    fork = f"child = os.fork() or leave()\nopen({str(tmp_path / 'children')!r}, 'a').write(f'{{child}} ')"
    model = write_model(tmp_path, "outlived", code, on_call=fork)
    config = override(preset_config("smoke", model), {"optimizer": {"num_steps": 6_000}, "measure": {"episodes": 8}})
    job = Job(name="run", kind="train", parts=(JobPart(write_toml(config), str(tmp_path / "run")),), custom=model)
    monkeypatch.chdir(tmp_path)
    kinds = []
    try:
        for event in run_jobs([job], 1, StopSignal()):
            if event.news.kind == "progress" and (event.news.step or 0) > 0 and "killed" not in kinds:
                kinds.append("killed")
                os.kill(status_process(tmp_path / "run"), signal.SIGKILL)
            kinds.append(event.news.kind)
        for child in (tmp_path / "children").read_text().split():
            os.kill(int(child), 0)  # it is alive
    finally:
        for child in (tmp_path / "children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
    assert kinds.count("killed") == 1
    assert kinds[-1] == "done"


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel has no groups of sessions")
def test_a_nice_command_has_nice_workers() -> None:
    code = "import os; os.setsid(); os.nice(7); from recombine.jobs.worker import stay_nice; stay_nice(); "
    code += "print(open('/proc/self/autogroup').read())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip().endswith(f"nice {min(19, os.nice(0) + 7)}")


def status_process(run: Path) -> int:
    import json

    return json.loads((run / "status.json").read_text())["process"]


def shaped(name: str, shape: str | None) -> Job:
    return Job(name=name, kind="train", parts=(), shape=shape)


def test_a_worker_takes_what_it_has_compiled() -> None:
    """Otherwise it takes a job that no other worker has compiled; no job is postponed too often."""

    def order(shapes: str, mine: str, others: str) -> str:
        """The names of the jobs, which are their positions, in the order in which a worker takes them."""
        jobs = [shaped(str(i), None if shape == "-" else shape) for i, shape in enumerate(shapes)]
        waiting, passed, compiled, taken = deque(jobs), Counter[str](), set(mine), ""
        while waiting:
            job = next_job(waiting, passed, compiled, set(others))
            taken += job.name
            compiled |= {job.shape} - {None}
        return taken

    assert order("abab", "", "") == "0213"
    assert order("abab", "b", "") == "1302"
    assert order("abab", "", "a") == "1302", "the other one does the rest of a"
    assert order("-a-a", "", "a") == "0213"
    assert order("aaaaaaaaab", "b", "a")[0] == "0", "too far away"
    many = [shaped("first", "a"), *(shaped(str(i), "b") for i in range(100))]
    waiting, passed = deque(many), Counter[str]()
    taken = [next_job(waiting, passed, {"b"}, set()).name for _ in range(20)]
    assert "first" in taken, "nothing is put off for long"


def test_a_job_is_tried_a_bounded_number_of_times(tmp_path: Path) -> None:
    """A directory in place of a file causes a disk error on every try."""
    job = train_job(tmp_path / "run")
    (tmp_path / "run" / "env.json").mkdir(parents=True)
    (tmp_path / "run" / "lock").touch()
    for retries in (0, 2):
        events = list(run_jobs([job], 1, StopSignal(), retries=retries))
        kinds = [event.news.kind for event in events if event.news.kind != "progress"]
        assert kinds[-1] == "failed"
        assert kinds.count("started") == 1 + retries


@pytest.mark.slow
def test_a_worker_that_dies_while_nobody_listens(tmp_path: Path) -> None:
    """The worker is idle, and the coordinator is busy with something else."""
    first, second = train_job(tmp_path / "first"), train_job(tmp_path / "second")
    kinds = []
    for event in run_jobs([first, second], 1, StopSignal(), retries=1):
        kinds.append((event.job.name, event.news.kind))
        if kinds[-1] == ("first", "done"):
            os.kill(status_process(tmp_path / "first"), signal.SIGKILL)
            time.sleep(1.0)
    assert kinds[-1] == ("second", "done")


def test_a_run_in_use_is_waited_for(tmp_path: Path) -> None:
    """This happens when a coordinator was killed and its worker is still saving."""
    holder = RunDirectory(tmp_path / "run")
    holder.__enter__()
    threading.Timer(3.0, holder.__exit__).start()
    kinds = [event.news.kind for event in run_jobs([train_job(tmp_path / "run")], 1, StopSignal(), retries=0)]
    assert kinds[-1] == "done"


def test_too_many_shapes_are_forgotten() -> None:
    kept: set[str] = set()
    for i in range(MOST_SHAPES):
        kept = keep_shape(kept, str(i))
    assert len(kept) == MOST_SHAPES
    assert keep_shape(kept, "3") == kept
    assert keep_shape(kept, "new") == {"new"}


def test_a_line_that_is_no_job_is_told_and_the_worker_still_leaves() -> None:
    """The worker continues to read: it takes the next line, and notices that stdin closes."""
    lines = b"nonsense\n{}\n\xff\xfe\n\n"
    worker = subprocess.run(
        python_command("recombine.jobs.worker"), input=lines, capture_output=True, timeout=300, check=False
    )
    told = [json.loads(one) for one in worker.stdout.splitlines()]
    assert [one["kind"] for one in told] == ["failed"] * 4
    assert worker.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM)


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_spec", lambda name: name == "jax_cuda12_plugin")
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)


@pytest.mark.usefixtures("plugin")
def test_one_run_at_a_time_on_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert machine.visible_gpus() == ["3", "5"]
    assert Executor().at_a_time == 2
    assert Executor(workers=4).at_a_time == 4
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert machine.visible_gpus() == []


def test_without_the_plugin_there_is_one_per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_spec", lambda name: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert Executor().at_a_time == machine.available_cores()


def test_workers_are_spread_over_the_gpus() -> None:
    taken: list[str | None] = []
    for _ in range(5):
        taken.append(least_used(["3", "5"], taken))
    assert taken == ["3", "5", "3", "5", "3"]
    assert least_used([], taken) is None


def test_a_worker_sees_its_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {}

    class Stop(Exception):
        pass

    def start(command: object, env: dict[str, str] | None = None, **_: object) -> None:
        given.update(env or {})
        raise Stop

    monkeypatch.setattr(local.subprocess, "Popen", start)
    with pytest.raises(Stop):
        local._Worker(local.queue.Queue(), "5")
    assert given["CUDA_VISIBLE_DEVICES"] == "5"


def test_gpus_are_reserved_on_ray_alone(tmp_path: Path) -> None:
    for executor in ("local", "slurm"):
        with pytest.raises(InputError, match="gpus"):
            Executor(executor=executor, gpus=1.0).check(tmp_path, dry_run=True)
    Executor(executor="ray", gpus=0.5).check(tmp_path, dry_run=True)
