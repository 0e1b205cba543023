"""Runs and sweeps that are killed again and again end with the same bits."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.reliability.processes import STEPS, children, command, complete
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


def test_killed_again_and_again(whole: Path, tmp_path: Path, torture: bool, attacked: Callable) -> None:
    arguments = command(tmp_path / "run", "--model", whole.name)
    rounds = 10 if torture else 1
    for seed in range(rounds):
        rng = random.Random(seed)
        path = tmp_path / f"{seed}" / "run"
        path.parent.mkdir()
        arguments = command(path, "--model", whole.name)
        for place in rng.sample(places(rng), k=10 if torture else 5):
            attacked("`kill -9` of a run")
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


GRID = """
[grid]
"optimizer.learning_rate" = {rates}
[task]
input_dim = 2
hidden_dim = 2
episode_length = 3
[model]
embed_dim = 4
num_heads = 1
num_layers = 1
ffn_factor = 1
[optimizer]
num_steps = {steps}
batch_size = 2
[measure]
episodes = 4
snapshots = 40
"""
SEEDS = 2
SECONDS = 900  # nothing takes so long


def sweep(place: Path, name: str) -> list[str]:
    command = [sys.executable, "-m", "recombine", "sweep", "--grid", str(place / "grid.toml"), "--preset", "smoke"]
    return [*command, "--seeds", str(SEEDS), "--workers", "2", "--retries", "1000", "--out", str(place / name)]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds its workers in /proc")
def test_a_sweep_killed_again_and_again(tmp_path: Path, torture: bool, attacked: Callable) -> None:
    """Fifty workers and five coordinators."""
    coordinators, workers = (5, 10) if torture else (1, 2)
    rates = [0.001, 0.002, 0.003, 0.004] if torture else [0.001, 0.002]
    (tmp_path / "grid.toml").write_text(GRID.format(steps=300_000 if torture else 6_000, rates=rates))
    subprocess.run(sweep(tmp_path, "whole"), check=True, capture_output=True, timeout=SECONDS)
    rng = random.Random(0)
    said, killed = "", 0
    for coordinator in range(coordinators + 1):
        log = tmp_path / f"log{coordinator}"
        with log.open("w") as file, subprocess.Popen(sweep(tmp_path, "killed"), stderr=file, stdout=file) as process:
            last = coordinator == coordinators
            killed += kill_workers(process, tmp_path / "killed", rng, 0 if last else workers)
            if not last:
                attacked("`kill -9` of a sweep's coordinator")
                process.kill()
            code = process.wait(SECONDS)
        said += log.read_text()
        assert code == (0 if last else -signal.SIGKILL), said
    attacked("`kill -9` of a sweep's worker", killed)
    assert killed == coordinators * workers
    whole = sorted((tmp_path / "whole").glob("transformer-*"))
    assert len(whole) == len(rates) * SEEDS
    went_on = 0
    for run in whole:
        again = tmp_path / "killed" / run.name
        assert result(again) == result(run), "nothing is lost"
        assert (again / "selection.json").read_bytes() == (run / "selection.json").read_bytes()
        assert json.loads((again / "status.json").read_text())["state"] == "done"
        steps = [start["step"] for start in json.loads((again / "env.json").read_text())["starts"]]
        assert steps == sorted(steps), "what was saved is not trained again"
        assert len(re.findall(rf"^{re.escape(run.name)}: done$", said, re.MULTILINE)) <= 1, "not twice to the end"
        went_on += sum(step > 0 for step in steps)
    sys.stdout.write(
        f"{killed} workers, {coordinators} coordinators killed; {len(whole)} runs went on {went_on} times\n"
    )
    assert went_on >= killed // 4, "runs were hit, and not only workers that start"


def kill_workers(process: subprocess.Popen, out: Path, rng: random.Random, count: int) -> int:
    """Kill workers at random times: one in three at any time, mostly while starting, the others during a run."""
    killed = 0
    while killed < count and process.poll() is None:
        anyone = killed % 3 == 2
        while not anyone and process.poll() is None and not at_a_run(process, out):
            time.sleep(0.02)
        time.sleep(rng.uniform(0.1, 4.0 if anyone else 1.5))
        if found := sorted(children(process.pid) if anyone else at_a_run(process, out)):
            with suppress(ProcessLookupError):
                os.kill(rng.choice(found), signal.SIGKILL)
                killed += 1
    return killed


def at_a_run(process: subprocess.Popen, out: Path) -> set[int]:
    """The workers that have made progress on a run."""
    found = set()
    for run in out.glob("transformer-*"):
        with suppress(OSError, ValueError):
            status, env = (json.loads((run / name).read_text()) for name in ("status.json", "env.json"))
            if status["state"] == "running" and status["step"] > env["starts"][-1]["step"]:
                found.add(status["process"])
    return found & set(children(process.pid))
