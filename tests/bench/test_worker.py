"""The worker speaks its protocol, and says what is missing and what failed."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from recombine.bench.peer.job import Job
from recombine.bench.worker import answers
from recombine.config.preset import preset_config

CONTENDER = """
import time
from recombine.bench.peer.job import Job

REQUIRES = ("numpy",)

def make_stepper(job):
    calls = []
    assert job.masks[0] == (1, 1, 0, 0, 0, 0)
    print("a library that talks")
    def run(num_steps):
        calls.append(num_steps)
        return float(sum(calls))
    return run
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Writes a contender's module, and gives its name."""

    def write(text: str) -> str:
        name = f"contender_{abs(hash((request.node.nodeid, text)))}"  # imported once, so never the same name again
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        return name

    return write


def order(module: str, job: dict[str, Any] | None = None) -> str:
    job = asdict(Job.from_config(preset_config("smoke", "transformer"))) if job is None else job
    return json.dumps({"module": module, "job": job})


def test_the_conversation(tmp_path: Path) -> None:
    """An order, then numbers of steps; nothing but answers on stdout; the end of the input is the end."""
    (tmp_path / "contender.py").write_text(CONTENDER)
    with subprocess.Popen(
        [sys.executable, "-m", "recombine.bench.worker"],
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

        def ask(line: str) -> dict[str, Any]:
            print(line, file=stdin, flush=True)
            return json.loads(stdout.readline())

        ready = ask(order("contender"))
        turns = [ask("7"), ask("2")]
        stdin.close()
        assert process.wait(timeout=60) == 0
        assert stdout.read() == ""
        assert "a library that talks" in stderr.read()
    assert ready.keys() >= {"import_seconds", "setup_seconds", "first_step_seconds"}
    assert ready["versions"].keys() == {"numpy"}
    assert [(turn["steps"], turn["loss"]) for turn in turns] == [(7, 8.0), (2, 10.0)]
    assert all(turn["seconds"] > 0 for turn in turns)
    if sys.platform == "linux":
        assert 1_000_000 < ready["import_bytes"] <= turns[0]["peak_bytes"] <= turns[1]["peak_bytes"]


JOB = "Job = dict\nREQUIRES = ()\n"
OUT = {
    "package": ("import no_such_package.part", {"missing": "no_such_package is not installed"}),
    "compiler": (
        JOB + "from recombine.bench.peer.job import Missing\ndef make_stepper(job): raise Missing('no compiler')",
        {"missing": "no compiler"},
    ),
    "ours": ("import recombine.no_such", {"failed": "No module named 'recombine.no_such'"}),
    "raises": (JOB + "def make_stepper(job): raise TypeError('so\\nand so')", {"failed": "TypeError: so and so"}),
    "diverges": (
        JOB + "def make_stepper(job): return lambda steps: float('nan')",
        {"failed": "ArithmeticError: the loss is nan"},
    ),
}


@pytest.mark.parametrize("case", OUT)
def test_one_that_cannot(case: str, module: Callable[[str], str]) -> None:
    text, expected = OUT[case]
    assert list(answers(iter([order(module(text), {})]))) == [expected]


def test_one_that_fails_on_the_way(module: Callable[[str], str]) -> None:
    text = JOB + "def make_stepper(job): return lambda steps: 1 / (3 - steps)"
    first, second, third = answers(iter([order(module(text), {}), "2", "3", "4"]))
    assert "failed" not in first
    assert second["loss"] == 1.0
    assert third == {"failed": "ZeroDivisionError: division by zero"}
