"""`python -m tests.reliability.waiting PHASE HERE ARGUMENTS…`: the command line, which stops in a phase for a signal.

It writes the file HERE when it has reached the phase, and continues when a signal has come (stuck: never).
"""

import sys
import time
from pathlib import Path
from typing import Any

import recombine.cli.main
from recombine.run.signals import StopSignal


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
