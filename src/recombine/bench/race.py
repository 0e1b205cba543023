"""The race: contenders take turns at the same number of steps.

The processes of all contenders are alive at once, and one contender runs at a time. Whatever else the machine does in
the meantime slows all contenders alike.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from time import perf_counter

from msgspec.structs import replace

from recombine.bench.contender_process import (
    SECONDS_TO_ANSWER,
    SECONDS_TO_START,
    ContenderProcess,
    Contestant,
    OutOfTheRace,
)
from recombine.bench.message import Failed, Missing, Ready, Turn
from recombine.record.codec import Record

Report = Callable[[str], None]
"""Called after every start and every turn of every contender, also of those that are out of the race."""


class RaceResult(Record, frozen=True):
    """The answers of one contender."""

    name: str
    ready: tuple[Ready, ...] = ()
    """One answer from each of its processes."""
    start_seconds: float | None = None
    """From before the start of its processes until each has done its first step."""
    rounds: tuple[tuple[Turn, ...], ...] = ()
    """For each round, one answer from each of its processes."""
    out: Missing | Failed | None = None
    """Why it is out of the race; None for one that finished."""

    @property
    def finished(self) -> bool:
        return self.out is None


def race(
    entries: Sequence[Contestant],
    steps: int,
    repeats: int,
    report: Report = lambda _: None,
    seconds_to_start: float = SECONDS_TO_START,
    seconds_to_answer: float = SECONDS_TO_ANSWER,
) -> dict[str, RaceResult]:
    """Every contender's result, by name. A contender that is missing or fails leaves the race; the others continue."""
    racers = [_Racer(entry) for entry in entries]
    with ExitStack() as stack:
        for racer in racers:  # one after the other, so that none is slowed by another that compiles
            racer.start(stack, seconds_to_start)
            if repeats:  # a contender may compile once more, for the state that a step has made
                racer.warm_up(steps, seconds_to_answer)
            report(f"{racer.name} is ready" if racer.result.finished else f"{racer.name} is out")
        for number in range(1, repeats + 1):
            for racer in racers:
                racer.run_round(steps, seconds_to_answer)
                report(f"{racer.name}, round {number}" if racer.result.finished else f"{racer.name} is out")
    return {racer.name: racer.result for racer in racers}


class _Racer:
    """A contender during the race: its processes, and its result so far."""

    def __init__(self, entry: Contestant):
        self.entry, self.name = entry, entry.name
        self.processes: list[ContenderProcess] = []
        self.result = RaceResult(entry.name)

    def start(self, stack: ExitStack, seconds: float) -> None:
        started = perf_counter()
        with self._or_leave():
            for _ in range(self.entry.processes):
                process = stack.enter_context(ContenderProcess(self.entry))
                self.processes.append(process)
                self.result = replace(self.result, ready=(*self.result.ready, process.await_ready(seconds)))
            self.result = replace(self.result, start_seconds=perf_counter() - started)

    def warm_up(self, steps: int, seconds: float) -> None:
        """A turn that does not count."""
        if self.result.finished:
            with self._or_leave():
                self._turn(steps, seconds)

    def run_round(self, steps: int, seconds: float) -> None:
        """A turn that counts. A contender that is out does nothing."""
        if self.result.finished:
            with self._or_leave():
                self.result = replace(self.result, rounds=(*self.result.rounds, self._turn(steps, seconds)))

    def _turn(self, steps: int, seconds: float) -> tuple[Turn, ...]:
        """All processes of the contender run at the same time."""
        for process in self.processes:
            process.begin_turn(steps)
        return tuple([process.end_turn(seconds) for process in self.processes])

    @contextmanager
    def _or_leave(self) -> Iterator[None]:
        """End the processes of a contender that cannot continue, and keep the reason."""
        try:
            yield
        except OutOfTheRace as out:
            self.result = replace(self.result, out=out.why)
            for process in self.processes:
                process.kill()
