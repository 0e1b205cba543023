"""`python -m tests.reliability.killed WHERE ARGUMENTS…`: the command line, which kills itself (SIGKILL) at one place.

io:N       at the N-th operation on the disk, after half of it if it is a write
metric:N   in the middle of the N-th row of metrics
measure:N  in the N-th pass of a measurement
compile    while the training step is being compiled
train:S    S seconds after the first step
"""

import os
import signal
import sys
import threading
import time
from typing import Any

import recombine.cli.main
import recombine.files
from tests.reliability.faults import CHANGING


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_later(seconds: float) -> None:
    threading.Thread(target=lambda: (time.sleep(seconds), kill()), daemon=True).start()


class KillingDisk:
    """`os`, until the operation with the number `at`."""

    def __init__(self, at: int, only: bytes = b""):
        self.left, self.only = at, only

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in CHANGING:
            return real

        def call(*args: Any, **kwargs: Any) -> Any:
            if not self.only or (name == "write" and bytes(args[1]).startswith(self.only)):
                self.left -= 1
            if self.left < 0:
                if name == "write":
                    real(args[0], bytes(args[1])[: len(args[1]) // 2])
                kill()
            return real(*args, **kwargs)

        return call


def arrange(where: str) -> None:
    place, _, number = where.partition(":")
    if place == "io":
        recombine.files.os = KillingDisk(int(number))  # pyright: ignore
    elif place == "metric":
        recombine.files.os = KillingDisk(int(number), only=b'{"step"')  # pyright: ignore
    elif place == "measure":
        import recombine.measure.snapshot as snapshot

        forward, calls = snapshot.forward_episodes, iter(range(int(number)))
        snapshot.forward_episodes = lambda *args: forward(*args) if next(calls, None) is not None else kill()  # pyright: ignore
    elif place in ("compile", "train"):
        import recombine.train.loop as loop

        run_steps = loop.run_steps

        def first(*args: Any) -> Any:
            loop.run_steps = run_steps
            if place == "compile":
                kill_later(0.2)
            steps = run_steps(*args)
            int(steps.done)
            if place == "train":
                kill_later(float(number))
            return steps

        loop.run_steps = first  # pyright: ignore


if __name__ == "__main__":
    from recombine.run.machine import prepare

    prepare(threads=1)  # before the modules that `arrange` patches bring JAX
    recombine.run.machine.prepare = lambda *args: None  # type: ignore
    if sys.argv[1] != "never":
        arrange(sys.argv[1])
    sys.exit(recombine.cli.main.main(sys.argv[2:]))
