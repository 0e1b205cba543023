"""Runs the command line in separate processes, on a run that takes some seconds."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import tomli_w

from tests.reliability.small_run import SMALL

ROOT = Path(__file__).parents[2]
STEPS = 40_000
SETTINGS = {**SMALL, "optimizer": {"num_steps": STEPS, "batch_size": 2}, "measure": {"episodes": 16, "snapshots": 20}}


def command(path: Path, *more: str, settings: dict = SETTINGS) -> list[str]:
    config = path.parent / "config.toml"
    if not config.exists():
        config.write_text(tomli_w.dumps(settings))
    return ["train", "--preset", "smoke", "--config", str(config), "--out", str(path), "--save-every", "0", *more]


def start(module: list[str], arguments: list[str], **environment: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", *module, *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def complete(module: list[str], arguments: list[str], **environment: str) -> subprocess.CompletedProcess:
    process = start(module, arguments, **environment)
    out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def children(process: int) -> list[int]:
    """The running child processes of a process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_text().rsplit(")", 1)[1].split()[1]) == process:
                found.append(int(path.parent.name))
    return found
