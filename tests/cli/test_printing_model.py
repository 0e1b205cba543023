"""A user's model that prints whenever it can: stdout has the results and nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recombine.cli.main import main
from recombine.jobs.protocol import Job, JobPart, News
from recombine.record.codec import decode, encode
from recombine.run.process import python_command
from tests.reliability.small_run import write_model

NOISE = """
import atexit
import ctypes
import os
import subprocess
import sys

kept = sys.stdout


def noise(when):
    print("NOISE print", when)
    sys.stdout.write(f"NOISE write {when}")
    sys.__stdout__.write("NOISE __stdout__")
    kept.write("NOISE kept")
    os.write(1, b"NOISE descriptor")
    subprocess.run(["echo", "NOISE", "child"], check=True)
    ctypes.CDLL(None).printf(b"NOISE of C")  # which is written when the process ends


noise("import")
atexit.register(noise, "exit")
"""
SMALL = ["measure.episodes=16", "optimizer.num_steps=8"]


@pytest.fixture
def noisy(tmp_path: Path) -> str:
    on_call = "noise('call'); jax.debug.print('NOISE while it runs {}', self.scale)"
    return write_model(tmp_path, "noisy", NOISE, "noise('build')", on_call)


def run(directory: Path, *arguments: str) -> str:
    """What a command prints on stdout; and all the noise, of every kind, is on stderr."""
    command = [sys.executable, "-m", "recombine", *arguments]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True)
    assert "NOISE" not in done.stdout
    for kind in ("print import", "write exit", "__stdout__", "kept", "descriptor", "child", "of C"):
        assert f"NOISE {kind}" in done.stderr
    return done.stdout


def test_json_of_a_command_can_be_parsed(tmp_path: Path, noisy: str) -> None:
    train = ["train", "--model", noisy, "--preset", "smoke", "--out", "run", "--set", *SMALL]
    assert json.loads(run(tmp_path, *train, "--json"))["step"] == 8


@pytest.mark.slow
def test_the_lines_of_a_worker_are_news(tmp_path: Path, noisy: str) -> None:
    from recombine.config.preset import preset_config
    from recombine.config.toml import override, parse_changes, write_toml

    config = override(preset_config("smoke", noisy), parse_changes(SMALL))
    part = JobPart(write_toml(config), str(tmp_path / "run"))
    job = Job(name="run", kind="train", parts=(part,), custom=noisy)
    news, noise = [], tmp_path / "noise"
    with (
        noise.open("w") as file,
        subprocess.Popen(
            python_command("recombine.jobs.worker"),
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        ) as worker,
    ):
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(f"{encode(job)}\n")
        worker.stdin.flush()
        for line in worker.stdout:
            news.append(decode(line, News))
            if news[-1].kind in ("done", "failed"):
                worker.stdin.close()
    assert news[-1].kind == "done"
    assert "NOISE print call" in noise.read_text()


def test_help_is_on_stdout() -> None:
    done = subprocess.run([sys.executable, "-m", "recombine", "train", "--help"], capture_output=True, text=True)
    assert "--model" in done.stdout
    assert not done.stderr


def test_a_command_inside_python_leaves_its_stdout_alone(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["task", "show", "--json"]) == 0
    os.write(1, b"after\n")
    assert capfd.readouterr().out.endswith("after\n")


def test_a_closed_stderr_is_no_error() -> None:
    command = [sys.executable, "-m", "recombine", "task", "show", "--json"]
    done = subprocess.run(["/bin/sh", "-c", '"$@" 2>&-', "sh", *command], stdout=subprocess.PIPE, check=True)
    assert json.loads(done.stdout)["masks"]
