"""Commands in processes of their own: start them, wait for them, kill them."""

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import tomli_w

import recombine.cli.main
import recombine.files
from recombine.run.signals import StopSignal
from tests.reliability.killed import KillingDisk
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


NEVER = 1 << 30
TRACEBACK = 70  # the exit code; Python's own is that of a refusal
forking = multiprocessing.get_context("forkserver")
# JAX is imported there and has not started, so that its threads are not lost in a fork.
forking.set_forkserver_preload(["tests.conftest", "tests.reliability.processes", "recombine.run.training"])


def run_processes(commands: Sequence[Sequence[object]], kill_at: int = NEVER) -> list[int]:
    """The exit codes of commands that run at once; each is killed at one of its operations on the disk."""
    texts = [[str(argument) for argument in command] for command in commands]
    processes = [forking.Process(target=_run, args=(text, kill_at)) for text in texts]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
    codes = [process.exitcode for process in processes]
    assert None not in codes, "a command does not end"
    assert TRACEBACK not in codes, "a command ends in a traceback"
    return [code for code in codes if code is not None]


def _run(arguments: list[str], kill_at: int) -> None:
    from recombine.cli.main import main

    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    recombine.files.os = KillingDisk(kill_at)  # pyright: ignore
    try:
        code = main(arguments)
    except BaseException:
        code = TRACEBACK
    sys.exit(code)


def wait(here: Path, forever: bool = False) -> None:
    here.touch()
    while forever or not REQUESTS[-1].requested():
        time.sleep(0.01)


REQUESTS: list[StopSignal] = []


def arrange(phase: str, here: Path) -> None:
    import recombine.measure.snapshot as snapshot
    import recombine.run.training as training
    import recombine.train.loop as loop

    init = StopSignal.__init__

    def remember(self: StopSignal) -> None:
        init(self)
        REQUESTS.append(self)

    StopSignal.__init__ = remember
    calls = {"n": 0}

    def on_call(function: Any, number: int, forever: bool = False) -> Any:
        def call(*args: Any) -> Any:
            calls["n"] += 1
            if calls["n"] == number:
                wait(here, forever)
            return function(*args)

        return call

    if phase == "compile":
        loop.run_steps = on_call(loop.run_steps, 1, forever=True)
    elif phase == "train":
        loop.run_steps = on_call(loop.run_steps, 4)
    elif phase == "stuck":
        loop.run_steps = on_call(loop.run_steps, 4, forever=True)
    elif phase == "measure":
        snapshot.forward_episodes = on_call(snapshot.forward_episodes, 7)
    elif phase == "last measure":
        snapshot.forward_episodes = on_call(snapshot.forward_episodes, 5 * 20 + 2)
    elif phase == "restore":
        training.restore_state = on_call(training.restore_state, 1)
    elif phase == "save":
        training.save_checkpoint = on_call(training.save_checkpoint, 3)


if __name__ == "__main__":
    from recombine.run.machine import prepare

    prepare()
    recombine.run.machine.prepare = lambda *_, **__: None  # type: ignore
    arrange(sys.argv[1], Path(sys.argv[2]))
    sys.exit(recombine.cli.main.main(sys.argv[3:]))
