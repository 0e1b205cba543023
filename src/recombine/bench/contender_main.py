"""The program of a contender's process: it times steps when it is asked to.

`python -m recombine.bench.contender_main` reads and writes lines of JSON. It reads an `Order`, does the first step and
answers `Ready`. Then it reads numbers of steps, one per line, and answers each with a `Turn`. A contender that cannot
run answers `Missing` or `Failed` instead. When the input ends, the process ends, whatever it is doing.

Each contender has a process of its own, so that none shares its threads or its memory with another.
"""

import math
import os
import sys
import threading
from collections.abc import Iterator
from importlib import import_module, metadata
from queue import SimpleQueue
from time import perf_counter
from typing import IO

from recombine.bench.message import Answer, Failed, Missing, Order, Ready, Turn
from recombine.bench.setting import MissingRequirement, Stepper
from recombine.record.codec import decode, encode
from recombine.run.machine import peak_memory
from recombine.run.process import take_stdout


def make_ready(order: Order) -> tuple[Ready, Stepper]:
    """Import the contender's module, make its stepper for the setting, and do the first step."""
    start = perf_counter()
    contender = import_module(order.module)
    import_seconds, import_bytes = perf_counter() - start, peak_memory()

    start = perf_counter()
    stepper = contender.make_stepper(order.setting)
    setup_seconds = perf_counter() - start

    first = take_turn(stepper, 1)
    versions = {package: metadata.version(package) for package in contender.REQUIRES}
    return Ready(versions, import_seconds, setup_seconds, first.seconds, import_bytes), stepper


def take_turn(stepper: Stepper, steps: int) -> Turn:
    start = perf_counter()
    loss = stepper(steps)
    seconds = perf_counter() - start
    if not math.isfinite(loss):
        raise ArithmeticError(f"the loss is {loss}")
    return Turn(steps, seconds, loss, peak_memory())


def answers(lines: Iterator[str]) -> Iterator[Answer]:
    """One answer to every line: the conversation, without the pipes."""
    order = decode(next(lines), Order)
    try:
        ready, stepper = make_ready(order)
        yield Answer(ready)
        for line in lines:
            yield Answer(take_turn(stepper, int(line)))
    except MissingRequirement as missing:
        yield Answer(Missing(str(missing)))
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        ours = package in ("", "recombine")
        yield Answer(Failed(str(error)) if ours else Missing(f"{package} is not installed"))
    except Exception as error:  # whatever a library raises, the other contenders are still to be measured
        yield Answer(Failed(" ".join(f"{type(error).__name__}: {error}".split())[:500]))


def lines_until_the_end(source: IO[str]) -> Iterator[str]:
    """The lines of the input. Its end ends the process, so that a hung contender does not outlive the benchmark."""
    lines: SimpleQueue[str] = SimpleQueue()

    def read() -> None:
        for line in source:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield lines.get()


def main() -> None:
    out = take_stdout()  # libraries that print must not disturb the answers
    for answer in answers(lines_until_the_end(sys.stdin)):
        out.write(encode(answer) + "\n")


if __name__ == "__main__":
    main()
