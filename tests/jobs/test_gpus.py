"""One worker per GPU: what is asked for, without a GPU."""

from pathlib import Path

import pytest

from recombine.cli.arguments import Executor
from recombine.errors import InputError
from recombine.jobs.executor import local
from recombine.jobs.executor.local import least_used
from recombine.run import machine


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
