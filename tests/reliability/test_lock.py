"""A run directory has one writer at a time, and a directory of many runs one coordinator."""

import signal
import time
from pathlib import Path

import pytest

from recombine.cli.main import main
from recombine.errors import InputError
from recombine.storage.locking import coordinating
from recombine.storage.writer import RunDirectory
from tests.reliability.commands import command, complete, start
from tests.reliability.small_run import finish


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
