"""The worker: one contender in a process of its own, which times steps when asked to.

`python -m recombine.bench.worker` speaks in lines of JSON. It reads {"module": …, "job": {…}} and, once the first step
is done, answers `Ready`, or what is "missing", or that it "failed" and why. Then it reads numbers of steps, one to a
line, and answers each with a `Turn`, until its input ends: then it ends, whatever it is doing. A process of its own,
so that no contender meets the threads or the memory of another.
"""

import json
import math
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from queue import SimpleQueue
from time import perf_counter
from typing import IO, Any

from recombine.bench.peer.job import Missing, Stepper
from recombine.run.machine import peak_memory


@dataclass(frozen=True)
class Ready:
    """A contender that has done its first step: seconds, and bytes of resident memory."""

    versions: dict[str, str]
    import_seconds: float
    setup_seconds: float  # until there is a stepper
    first_step_seconds: float  # what is compiled is compiled here
    import_bytes: int | None  # what the libraries take by themselves


@dataclass(frozen=True)
class Turn:
    """A number of steps, run at one go."""

    steps: int
    seconds: float
    loss: float  # of the last step
    peak_bytes: int | None  # so far


def make_ready(module: str, fields: dict[str, Any]) -> tuple[Ready, Stepper]:
    """Import the module, make its stepper of the job with these fields, and do the first step."""
    start = perf_counter()
    contender = import_module(module)
    import_seconds, import_bytes = perf_counter() - start, peak_memory()

    start = perf_counter()
    stepper = contender.make_stepper(contender.Job(**fields))
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


def answers(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """An answer to every line: the conversation, without the pipes."""
    order = json.loads(next(lines))
    try:
        ready, stepper = make_ready(order["module"], order["job"])
        yield asdict(ready)
        for line in lines:
            yield asdict(take_turn(stepper, int(line)))
    except Missing as missing:
        yield {"missing": str(missing)}
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        ours = package in ("", "recombine")
        yield {"failed": str(error)} if ours else {"missing": f"{package} is not installed"}
    except Exception as error:  # whatever a library raises, the others are still to be measured
        yield {"failed": " ".join(f"{type(error).__name__}: {error}".split())[:500]}


def lines_until_the_end(source: IO[str]) -> Iterator[str]:
    """The lines of the input; when it ends, so does the process: a hung contender must not outlive who asked it."""
    lines: SimpleQueue[str] = SimpleQueue()

    def read() -> None:
        for line in source:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield lines.get()


def main() -> None:
    # What libraries print goes to stderr: stdout is for answers.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        for answer in answers(lines_until_the_end(sys.stdin)):
            out.write(json.dumps(answer) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
