"""When memory runs out, that is what is said, with what is saved; the run resumes from there."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import recombine.run.training as training
from recombine.cli.main import main
from recombine.jobs.execute import execute_job
from recombine.jobs.protocol import Job, JobPart
from recombine.run.signals import StopSignal, run_interruptibly
from recombine.storage.checkpoint import list_checkpoints, read_checkpoint
from tests.reliability.commands import command
from tests.reliability.small_run import SMALL, finish, result, small_config

ERRORS = {
    "Python's": MemoryError(),
    "JAX's": jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\nmore\nlines"),
    "the system's": OSError(12, "Cannot allocate memory"),
}


def fail_after(calls: int, function, error: BaseException):
    """The function, that many times; after that, the error."""
    left = iter(range(calls))

    def call(*args, **kwargs):
        if next(left, None) is None:
            raise error
        return function(*args, **kwargs)

    return call


@pytest.mark.parametrize("place", ["save_checkpoint", "measure_parts", "train"])
@pytest.mark.parametrize("kind", ERRORS)
def test_a_run(
    place: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    calls = 0 if place == "train" else 2
    with monkeypatch.context() as patched:
        patched.setattr(training, place, fail_after(calls, getattr(training, place), ERRORS[kind]))
        assert main(command(path, settings=SMALL)) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    newest = list_checkpoints(path / "checkpoints")[0]
    assert "out of memory" in last
    assert f"step {read_checkpoint(newest).step} " in last
    status = json.loads((path / "status.json").read_text())
    assert status["state"] == "failed"
    assert "out of memory" in status["error"]
    assert main(command(path, settings=SMALL)) == 0
    finish(tmp_path / "whole")
    assert result(path) == result(tmp_path / "whole")


def test_a_job_of_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker hears of JAX's error as of Python's: the job has failed, and the worker takes the next."""
    from recombine.config.toml import write_toml

    job = Job(name="run", kind="train", parts=(JobPart(write_toml(small_config()), str(tmp_path / "run")),))
    monkeypatch.setattr(training, "init_state", fail_after(0, training.init_state, ERRORS["JAX's"]))
    with pytest.raises(MemoryError):
        execute_job(job, StopSignal(), lambda news: None)


def test_no_memory_for_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threading.Thread.start", fail_after(0, None, RuntimeError("can't start new thread")))
    with pytest.raises(MemoryError):
        run_interruptibly(lambda stop: None, lambda text: None)


def test_work_that_ends_without_an_outcome_is_not_said_to_be_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory may run out even for the error; a signal that came meanwhile does not mean that anything is saved."""
    monkeypatch.setattr("threading.Thread.run", lambda thread: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(MemoryError):
        run_interruptibly(lambda stop: None, lambda text: None)


@pytest.mark.parametrize(
    "arguments",
    [["train", "--out", "new"], ["task", "sample", "--out", "a.npz"], ["construct"], ["reproduce", "--out", "new"]],
    ids=" ".join,
)
def test_a_limit_under_which_jax_cannot_start(arguments: list[str], tmp_path: Path) -> None:
    limit = 2 << 20  # KiB
    shell = f"ulimit -v {limit}; exec {shlex.join([sys.executable, '-m', 'recombine', *arguments])}"
    result = subprocess.run(["sh", "-c", shell], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert str(limit) in result.stderr
    assert not list(tmp_path.iterdir())
