"""`python -m tests.reliability.waiting PHASE HERE ARGUMENTS…`: the command line, which stops in a phase for a signal.

It writes the file HERE when it is there, and goes on when a signal has come (stuck: never).
"""

import sys
import time
from pathlib import Path
from typing import Any

import recombine.cli.main
from recombine.run.signals import StopRequest


def wait(here: Path, forever: bool = False) -> None:
    here.touch()
    while forever or not REQUESTS[-1].requested():
        time.sleep(0.01)


REQUESTS: list[StopRequest] = []


def arrange(phase: str, here: Path) -> None:
    import recombine.measure.snapshot as evaluate
    import recombine.run.training as run
    import recombine.train.loop as loop

    init = StopRequest.__init__

    def remember(self: StopRequest) -> None:
        init(self)
        REQUESTS.append(self)

    StopRequest.__init__ = remember
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
        evaluate.forward_episodes = on_call(evaluate.forward_episodes, 7)
    elif phase == "last measure":
        evaluate.forward_episodes = on_call(evaluate.forward_episodes, 5 * 20 + 2)
    elif phase == "restore":
        run.init_state = on_call(run.init_state, 1)
    elif phase == "save":
        run.save_checkpoint = on_call(run.save_checkpoint, 3)


if __name__ == "__main__":
    from recombine.run.machine import prepare

    prepare()
    recombine.run.machine.prepare = lambda *_, **__: None  # type: ignore
    arrange(sys.argv[1], Path(sys.argv[2]))
    sys.exit(recombine.cli.main.main(sys.argv[3:]))
