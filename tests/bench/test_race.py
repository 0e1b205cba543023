"""Contenders take turns. One that fails or hangs does not stop the rest."""

from pathlib import Path

import pytest

from recombine.bench.contender_process import Contestant
from recombine.bench.message import Failed, Missing
from recombine.bench.race import race
from recombine.bench.setting import MatmulSetting

CONTENDER = """
import os, threading
from recombine.bench.setting import MissingRequirement

REQUIRES = ()
NAME, LOG, FATE = (os.environ[f"CONTENDER_{variable}"] for variable in ("NAME", "LOG", "FATE"))

def make_stepper(setting):
    if FATE == "missing":
        raise MissingRequirement("no such thing here")
    calls = []
    def run(num_steps):
        with open(LOG, "a") as log:
            log.write(f"{NAME} begins {num_steps}\\n")
        calls.append(num_steps)
        if len(calls) == 3:  # the first step, the warm-up, and the first round
            match FATE:
                case "fails": raise ValueError("of no use")
                case "dies": os.write(2, b"the last word\\n"), os._exit(3)
                case "hangs": threading.Event().wait()
        with open(LOG, "a") as log:
            log.write(f"{NAME} ends {num_steps}\\n")
        return 0.5
    return run
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "fake_contender.py").write_text(CONTENDER)
    return tmp_path


def entry(directory: Path, name: str, processes: int = 1, fate: str = "") -> Contestant:
    environment = {
        "PYTHONPATH": str(directory),
        "CONTENDER_NAME": name,
        "CONTENDER_LOG": str(directory / "log"),
        "CONTENDER_FATE": fate,
    }
    return Contestant(name, "fake_contender", MatmulSetting("numpy", 1, 1, 1, 1), environment, processes)


def log(directory: Path) -> list[str]:
    return (directory / "log").read_text().splitlines()


def turns(*order: tuple[str, int]) -> list[str]:
    """The log of contenders that run one at a time: each ends before the next begins."""
    return [f"{name} {event} {steps}" for name, steps in order for event in ("begins", "ends")]


def test_they_take_turns(directory: Path) -> None:
    reports: list[str] = []
    results = race([entry(directory, name) for name in "abc"], steps=7, repeats=2, report=reports.append)
    starts = [(name, steps) for name in "abc" for steps in (1, 7)]
    assert log(directory) == turns(*starts, *[(name, 7) for name in "abcabc"])
    assert [len(result.rounds) for result in results.values()] == [2, 2, 2]
    assert all(result.finished and result.start_seconds for result in results.values())
    assert [turn.steps for result in results.values() for (turn,) in result.rounds] == [7] * 6
    assert len(reports) == 3 * (1 + 2)


def test_a_contender_of_several_processes(directory: Path) -> None:
    results = race([entry(directory, "pair", processes=2), entry(directory, "single")], steps=5, repeats=2)
    assert [[len(turns) for turns in result.rounds] for result in results.values()] == [[2, 2], [1, 1]]
    assert len(results["pair"].ready) == 2
    assert sorted(log(directory)[-6:-2]) == ["pair begins 5"] * 2 + ["pair ends 5"] * 2
    assert log(directory)[-2:] == ["single begins 5", "single ends 5"]


def test_those_that_do_not_finish(directory: Path) -> None:
    fates = ["missing", "fails", "dies"]
    entries = [*(entry(directory, fate, fate=fate) for fate in fates), entry(directory, "good")]
    reports: list[str] = []
    results = race(entries, steps=2, repeats=2, report=reports.append)
    assert results["missing"].out == Missing("no such thing here")
    assert results["fails"].out == Failed("ValueError: of no use")
    assert results["dies"].out == Failed("ended with code 3: the last word")
    assert results["good"].finished
    assert len(results["good"].rounds) == 2
    assert log(directory)[-2:] == turns(("good", 2))
    assert len(reports) == 4 * (1 + 2)


def test_one_that_hangs_is_ended(directory: Path) -> None:
    entries = [entry(directory, "hangs", fate="hangs"), entry(directory, "good")]
    results = race(entries, steps=2, repeats=1, seconds_to_answer=2.0)
    assert results["hangs"].out == Failed("no answer within 2 seconds")
    assert results["good"].finished


def test_one_that_never_starts(directory: Path) -> None:
    (directory / "fake_contender.py").write_text("import threading\nthreading.Event().wait()")
    results = race([entry(directory, "hangs")], steps=2, repeats=1, seconds_to_start=1.0)
    assert results["hangs"].out == Failed("no answer within 1 seconds")
