"""Commands in processes of their own, at once or killed. They are forked from one that has imported everything."""

import multiprocessing
import os
import sys
from collections.abc import Sequence

import recombine.files
from tests.reliability.killed import KillingDisk

NEVER = 1 << 30
TRACEBACK = 70  # the exit code; Python's own is that of a refusal
forking = multiprocessing.get_context("forkserver")
# JAX is imported there and has not started, so that its threads are not lost in a fork.
forking.set_forkserver_preload(["tests.conftest", "tests.reliability.other_process", "recombine.run.training"])


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
