"""The program of a contender answers each message, also if it cannot run."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from recombine.bench.contender_main import answers
from recombine.bench.message import Answer, Failed, Missing, Order, Ready, Turn
from recombine.bench.setting import PeerSetting
from recombine.config.preset import preset_config
from recombine.record.codec import decode, encode

CONTENDER = """
REQUIRES = ("numpy",)

def make_stepper(setting):
    calls = []
    assert setting.masks[0] == (1, 1, 0, 0, 0, 0)
    print("a library that talks")
    def run(num_steps):
        calls.append(num_steps)
        return float(sum(calls))
    return run
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Callable[[str], str]:
    """A function that writes the module of a contender and returns its name."""

    def write(text: str) -> str:
        name = f"contender_{abs(hash((request.node.nodeid, text)))}"  # imported once, so never the same name again
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        return name

    return write


def order(module: str) -> str:
    return encode(Order(module, PeerSetting.from_config(preset_config("smoke", "transformer"))))


def test_the_conversation(tmp_path: Path) -> None:
    """An order, then numbers of steps. Only answers are on stdout. The end of the input ends the process."""
    (tmp_path / "contender.py").write_text(CONTENDER)
    with subprocess.Popen(
        [sys.executable, "-m", "recombine.bench.contender_main"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None

        def ask(line: str) -> Ready | Turn | Missing | Failed:
            print(line, file=stdin, flush=True)
            return decode(stdout.readline(), Answer).content

        ready = ask(order("contender"))
        turns = [turn for turn in (ask("7"), ask("2")) if isinstance(turn, Turn)]
        stdin.close()
        assert process.wait(timeout=60) == 0
        assert stdout.read() == ""
        assert "a library that talks" in stderr.read()
    assert isinstance(ready, Ready)
    assert min(ready.import_seconds, ready.setup_seconds, ready.first_step_seconds) > 0
    assert ready.versions.keys() == {"numpy"}
    assert [(turn.steps, turn.loss) for turn in turns] == [(7, 8.0), (2, 10.0)]
    assert all(turn.seconds > 0 for turn in turns)
    if sys.platform == "linux":
        peaks = [ready.import_bytes or 0, *(turn.peak_bytes or 0 for turn in turns)]
        assert peaks == sorted(peaks)
        assert peaks[0] > 1_000_000


NO_PACKAGES = "REQUIRES = ()\n"
CANNOT_RUN = {
    "package": ("import no_such_package.part", Missing("no_such_package is not installed")),
    "compiler": (
        NO_PACKAGES
        + "from recombine.bench.setting import MissingRequirement\n"
        + "def make_stepper(setting): raise MissingRequirement('no compiler')",
        Missing("no compiler"),
    ),
    "ours": ("import recombine.no_such", Failed("No module named 'recombine.no_such'")),
    "raises": (
        NO_PACKAGES + "def make_stepper(setting): raise TypeError('so\\nand so')",
        Failed("TypeError: so and so"),
    ),
    "diverges": (
        NO_PACKAGES + "def make_stepper(setting): return lambda steps: float('nan')",
        Failed("ArithmeticError: the loss is nan"),
    ),
}


@pytest.mark.parametrize("case", CANNOT_RUN)
def test_one_that_cannot_run(case: str, module: Callable[[str], str]) -> None:
    text, expected = CANNOT_RUN[case]
    assert list(answers(iter([order(module(text))]))) == [Answer(expected)]


def test_one_that_fails_on_the_way(module: Callable[[str], str]) -> None:
    text = NO_PACKAGES + "def make_stepper(setting): return lambda steps: 1 / (3 - steps)"
    first, second, third = (answer.content for answer in answers(iter([order(module(text)), "2", "3", "4"])))
    assert isinstance(first, Ready)
    assert isinstance(second, Turn)
    assert second.loss == 1.0
    assert third == Failed("ZeroDivisionError: division by zero")
