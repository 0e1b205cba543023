"""The race: contenders take turns at the same number of steps.

All workers of a race are alive at once, and one contender at a time is asked to run: what else the machine does
meanwhile hits all alike.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from recombine.bench.process import SECONDS_TO_ANSWER, SECONDS_TO_START, Entry, OutOfTheRace, WorkerProcess

Report = Callable[[str], None]
"""Told of each thing done: every start, and every turn of every contender, those out of the race included."""


@dataclass
class Result:
    """How a contender fared: a row of answers for every round, an answer from each of its processes."""

    name: str
    ready: list[dict[str, Any]] = field(default_factory=list)
    start_seconds: float | None = None  # from before the process until its first step was done
    rounds: list[list[dict[str, Any]]] = field(default_factory=list)
    missing: str | None = None
    failed: str | None = None

    @property
    def finished(self) -> bool:
        return self.missing is None and self.failed is None

    def leave(self, out: OutOfTheRace) -> None:
        if out.missing:
            self.missing = out.reason
        else:
            self.failed = out.reason


def race(
    entries: Sequence[Entry],
    steps: int,
    repeats: int,
    report: Report = lambda _: None,
    seconds_to_start: float = SECONDS_TO_START,
    seconds_to_answer: float = SECONDS_TO_ANSWER,
) -> dict[str, Result]:
    """Every contender's result, by name. One that is missing or fails leaves the race; the others go on."""
    results = {entry.name: Result(entry.name) for entry in entries}
    workers: dict[str, list[WorkerProcess]] = {}
    with ExitStack() as stack:
        for entry in entries:  # one after the other, so that none compiles at another's cost
            result = results[entry.name]
            started = perf_counter()
            workers[entry.name] = []
            try:
                for _ in range(entry.processes):
                    worker = stack.enter_context(WorkerProcess(entry))
                    workers[entry.name].append(worker)
                    result.ready.append(worker.receive(seconds_to_start))
                result.start_seconds = perf_counter() - started
                if repeats:  # a contender may compile once more, for the state that a step has made
                    _turn(workers[entry.name], steps, seconds_to_answer)
                report(f"{entry.name} is ready")
            except OutOfTheRace as out:
                _leave(result, workers[entry.name], out)
                report(f"{entry.name} is out")
        for number in range(1, repeats + 1):
            for entry in entries:
                result = results[entry.name]
                if result.finished:
                    try:
                        result.rounds.append(_turn(workers[entry.name], steps, seconds_to_answer))
                    except OutOfTheRace as out:
                        _leave(result, workers[entry.name], out)
                report(f"{entry.name}, round {number}" if result.finished else f"{entry.name} is out")
    return results


def _turn(workers: Sequence[WorkerProcess], steps: int, seconds: float) -> list[dict[str, Any]]:
    """All processes of one contender, at the same time."""
    for worker in workers:
        worker.send(str(steps))
    return [worker.receive(seconds) for worker in workers]


def _leave(result: Result, workers: Sequence[WorkerProcess], out: OutOfTheRace) -> None:
    result.leave(out)
    for worker in workers:
        worker.process.kill()
