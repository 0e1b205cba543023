"""SIGTERM and SIGINT in every phase: the run saves and exits with 143 or 130; a second signal exits at once."""

import json
import signal
import time
from pathlib import Path

import pytest

from recombine.run.signals import StopSignal
from recombine.run.training import execute_run
from tests.reliability.commands import STEPS, command, complete, start
from tests.reliability.small_run import result, small_config

WAITING = ["tests.reliability.waiting"]


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing interrupts."""
    path = tmp_path_factory.mktemp("whole") / "run"
    assert complete(["recombine"], command(path)).returncode == 0
    return path


@pytest.mark.parametrize("signum", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
@pytest.mark.parametrize("phase", ["compile", "train", "measure", "save"])
def test_a_signal_in_each_phase(tmp_path: Path, signum: signal.Signals, phase: str) -> None:
    """The process reports that it is in the phase, stays there until the signal has come, and continues."""
    path, here = tmp_path / "run", tmp_path / "here"
    process = start(WAITING, [phase, str(here), *command(path)])
    wait_for(here)
    process.send_signal(signum)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 128 + signum, complaint
    assert "Traceback" not in complaint
    status = json.loads((path / "status.json").read_text())
    assert status["state"] == "interrupted"
    newest = max((path / "checkpoints").glob("step-*"))
    assert int(newest.name[5:]) == status["step"], "the newest checkpoint is of the step that was reached"
    if phase != "compile":
        assert status["step"] > 0


def test_a_second_signal_leaves_at_once(tmp_path: Path) -> None:
    path, here = tmp_path / "run", tmp_path / "here"
    process = start(WAITING, ["stuck", str(here), *command(path)])
    wait_for(here)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, complaint = process.communicate(timeout=5)
    assert process.returncode == 143
    assert "exited at once" in complaint


def test_a_signal_in_the_last_measurement(whole: Path, tmp_path: Path) -> None:
    here, path = tmp_path / "here", tmp_path / "run"
    process = start(WAITING, ["last measure", str(here), *command(path)])
    wait_for(here)
    process.send_signal(signal.SIGTERM)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 143, complaint
    status = json.loads((path / "status.json").read_text())
    assert (status["state"], status["step"]) == ("interrupted", STEPS)
    assert complete(["recombine"], command(path)).returncode == 0
    assert result(path) == result(whole)
    assert json.loads((path / "status.json").read_text())["state"] == "done"


def test_an_interrupted_run_ends_as_the_one_that_was_not(whole: Path, tmp_path: Path) -> None:
    here, path = tmp_path / "here", tmp_path / "run"
    for phase in ("train", "restore", "measure"):
        here.unlink(missing_ok=True)
        process = start(WAITING, [phase, str(here), *command(path)])
        wait_for(here)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130
    assert complete(["recombine"], command(path)).returncode == 0
    assert result(path) == result(whole)


def test_asked_to_leave_after_the_run_has_looked(tmp_path: Path) -> None:
    """A signal may come between two checks of the request: the training done until then is saved all the same."""
    request = StopSignal()
    for progress in execute_run(small_config(), tmp_path / "run", stop=request):
        if progress.step:  # reported when it was decided that nothing is to be saved
            request.signum = signal.SIGTERM
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["state"] == "interrupted"
    assert status["step"] > 0
    assert newest_step(tmp_path / "run") == status["step"]


def newest_step(path: Path) -> int:
    return max(int(one.name.removeprefix("step-")) for one in (path / "checkpoints").glob("step-*"))
