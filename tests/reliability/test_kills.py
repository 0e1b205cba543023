"""`kill -9` at any instant: the run resumes, ends bit for bit like an undisturbed run, and loses no metric."""

import json
import random
import signal
from pathlib import Path

import pytest

from tests.reliability.commands import STEPS, command, complete
from tests.reliability.small_run import result

KILLED = ["tests.reliability.killed"]


@pytest.fixture(scope="module", params=[pytest.param("transformer", marks=pytest.mark.slow), "hypertransformer"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing interrupts."""
    path = tmp_path_factory.mktemp("whole") / request.param
    finished = complete(KILLED, ["never", *command(path, "--model", request.param)], XLA_FLAGS="")
    assert finished.returncode == 0, finished.stderr
    return path


def places(rng: random.Random) -> list[str]:
    """Ten kills: in saves, in metric writes, in measuring, in compiling, and between."""
    return [
        "compile",
        f"io:{rng.randrange(1, 40)}",
        f"io:{rng.randrange(40, 160)}",
        f"io:{rng.randrange(40, 160)}",
        f"metric:{rng.randrange(0, 3)}",
        f"measure:{rng.randrange(0, 10)}",
        f"train:{rng.uniform(0, 0.3):.3f}",
        f"train:{rng.uniform(0, 0.3):.3f}",
        f"train:{rng.uniform(0.3, 0.8):.3f}",
        f"train:{rng.uniform(0.3, 0.8):.3f}",
    ]


def test_killed_again_and_again(whole: Path, tmp_path: Path, torture: bool) -> None:
    arguments = command(tmp_path / "run", "--model", whole.name)
    rounds = 10 if torture else 1
    for seed in range(rounds):
        rng = random.Random(seed)
        path = tmp_path / f"{seed}" / "run"
        path.parent.mkdir()
        arguments = command(path, "--model", whole.name)
        for place in rng.sample(places(rng), k=10 if torture else 5):
            ended = complete(KILLED, [place, *arguments], XLA_FLAGS="")
            assert ended.returncode == -signal.SIGKILL, f"{place}: {ended.stderr}"
            assert_whole_rows(path)
        ended = complete(KILLED, ["never", *arguments], XLA_FLAGS="")
        assert ended.returncode == 0, ended.stderr
        assert result(path) == result(whole)
        steps = [json.loads(line)["step"] for line in (path / "metrics.jsonl").read_text().splitlines()]
        assert steps == list(range(0, STEPS + 1, STEPS // 20))


def assert_whole_rows(path: Path) -> None:
    """Check that the metrics in the newest checkpoint are complete rows in order, after a kill."""
    for checkpoint in (path / "checkpoints").glob("step-*"):
        steps = [json.loads(line)["step"] for line in (checkpoint / "metrics.jsonl").read_text().splitlines()]
        assert steps == list(range(0, len(steps) * STEPS // 20, STEPS // 20))
