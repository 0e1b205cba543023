"""Signals, and the lock of a run directory."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from recombine.cli.main import main
from recombine.errors import InputError
from recombine.run.signals import StopSignal
from recombine.run.training import execute_run
from recombine.storage.locking import coordinating
from recombine.storage.writer import RunDirectory
from tests.reliability import processes
from tests.reliability.processes import SETTINGS, complete, start
from tests.reliability.small_run import finish, result, small_config, write_model

WAITING = ["tests.reliability.processes"]
STEPS = 8_000
SHORT = SETTINGS | {"optimizer": {"num_steps": STEPS, "batch_size": 2}}


def command(path: Path, *more: str) -> list[str]:
    return processes.command(path, *more, settings=SHORT)


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
@pytest.mark.parametrize(
    "phase", ["train", "save", *(pytest.param(phase, marks=pytest.mark.slow) for phase in ("compile", "measure"))]
)
def test_a_signal_in_each_phase(tmp_path: Path, signum: signal.Signals, phase: str, attacked: Callable) -> None:
    """The process reports that it is in the phase, stays there until the signal has come, and continues."""
    attacked("SIGTERM or SIGINT to a run")
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


def test_an_interrupted_run_ends_as_the_one_that_was_not(whole: Path, tmp_path: Path, attacked: Callable) -> None:
    here, path = tmp_path / "here", tmp_path / "run"
    for phase in ("train", "restore", "measure"):
        attacked("SIGTERM or SIGINT to a run")
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


def test_the_second_is_told_who_holds_it(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run"):
        started = time.monotonic()
        with pytest.raises(InputError, match=r"in use by process \d+ on "):
            finish(tmp_path / "run")
        assert time.monotonic() - started < 2
    finish(tmp_path / "run")


def test_two_processes_race_and_one_wins(tmp_path: Path) -> None:
    arguments = command(tmp_path / "run", "--stop-at", "2000")
    racers = [start(["recombine"], arguments) for _ in range(2)]
    ends = [(racer.communicate(timeout=120), racer.returncode) for racer in racers]
    codes = [code for _, code in ends]
    assert 0 in codes, ends
    for (_, complaint), code in ends:
        if code:
            assert code == 2
            assert "in use by process" in complaint
    assert codes.count(0) == 1 or complete(["recombine"], arguments).returncode == 0


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = start(["recombine"], command(path))
    deadline = time.monotonic() + 60
    while not (path / "status.json").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    with pytest.raises(InputError, match=f"in use by process {process.pid} on"), RunDirectory(path):
        pass
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with RunDirectory(path):
        pass


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Path]:
    """A file to which processes write their numbers; they are ended with the test."""
    path = tmp_path / "children"
    path.touch()
    yield path
    for number in path.read_text().split():
        with suppress(ProcessLookupError):
            os.kill(int(number), signal.SIGKILL)


FORKS = {
    "fork": "child = os.fork() or sleep()",
    "multiprocessing": "child = start(multiprocessing.get_context('fork').Process(target=sleep))",
    "subprocess": "child = subprocess.Popen(['sleep', '600']).pid",
}
FORKING = """
import multiprocessing
import os
import subprocess
import time
import warnings

warnings.simplefilter("ignore")  # JAX's, of a fork


def sleep():
    time.sleep(600)
    os._exit(0)


def start(process):
    process.start()
    return process.pid


def leave_child():
    {fork}
    with open({children!r}, "a") as file:
        file.write(f"{{child}}\\n")
"""


@pytest.mark.parametrize(
    "fork", ["fork", *(pytest.param(name, marks=pytest.mark.slow) for name in ("multiprocessing", "subprocess"))]
)
def test_a_process_that_a_user_model_forked_has_no_lock(tmp_path: Path, children: Path, fork: str) -> None:
    """It outlives the holder, which is killed; the run resumes beside it."""
    code = FORKING.format(fork=FORKS[fork], children=str(children))
    model = write_model(tmp_path, f"forking_{fork}", code, on_call="leave_child()")
    path = tmp_path / "run"
    command = ["train", "--model", model, "--preset", "smoke", "--out", str(path)]
    command += ["--set", "optimizer.num_steps=1000000", "measure.episodes=16"]
    holder = subprocess.Popen(
        [sys.executable, "-m", "recombine", *command],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not (path / "metrics.jsonl").exists() or not (path / "metrics.jsonl").read_text():
        assert holder.poll() is None, "it trains until it is killed"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    holder.kill()
    holder.wait()
    left = children.read_text().split()
    assert left
    os.kill(int(left[-1]), 0)  # it is alive: forked while the lock was held
    with RunDirectory(path):
        pass


RETURNING_CHILD = """
import os, sys
from pathlib import Path
from recombine.errors import InputError
from recombine.storage.writer import RunDirectory

with RunDirectory(Path(sys.argv[1])) as directory:
    if not os.fork():
        directory.write_status("failed", 0, 1)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.wait()[1]) == 0:
        sys.exit("the child has written")
    try:
        RunDirectory(Path(sys.argv[1])).__enter__()
    except InputError:
        sys.exit(0)
    sys.exit("the child has freed its parent's lock")
"""


def test_a_forked_child_is_no_writer(tmp_path: Path) -> None:
    """If it returns into our code, by an error say, it can write nothing, and leaves its parent the lock."""
    command = [sys.executable, "-c", RETURNING_CHILD, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "run" / "status.json").exists()


def test_a_second_coordinator_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both `sweep` and `reproduce` are refused and write nothing. A killed coordinator blocks nobody."""
    grid, out = tmp_path / "grid.toml", tmp_path / "sweep"
    grid.write_text('[grid]\n"model.embed_dim" = [8]\n[optimizer]\nnum_steps = 1_000_000\n')
    sweep = ["sweep", "--grid", str(grid), "--preset", "smoke", "--workers", "1", "--out", str(out), "--seeds"]
    first = start(["recombine"], [*sweep, "1"])
    deadline = time.monotonic() + 60
    while not (out / "sweep.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    listed = (out / "sweep.jsonl").read_bytes()
    for second in ([*sweep, "2"], ["reproduce", "--preset", "smoke", "--out", str(out)]):
        monkeypatch.setattr(f"recombine.cli.{second[0]}.execute_jobs", lambda *_: pytest.fail("it is not refused"))
        assert main(second) == 2
        assert f"out = '{out}': in use by process {first.pid} on" in capsys.readouterr().err
    assert (out / "sweep.jsonl").read_bytes() == listed
    first.send_signal(signal.SIGKILL)
    first.communicate()
    with coordinating(out):
        pass
