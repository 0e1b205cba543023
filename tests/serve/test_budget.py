"""On a busy machine the server uses its share and no more; on an idle one it never waits."""

import asyncio
import threading
from pathlib import Path

import pytest

from recombine.serve import budget
from recombine.serve import busy as busy_module
from recombine.serve.app import Server
from recombine.serve.budget import BURST, MOST_EXEMPT, PATIENCE, Budget, Gate


class Machine:
    """A clock, the processor time that was used, and how busy the cores are, all set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, busy: float):
        self.clock = self.used = self.slept = self.busy_seconds = 0.0
        self.busy, self.cores = busy, 2
        monkeypatch.setattr("time.monotonic", lambda: self.clock)
        read = lambda ours: busy_module.CoreSeconds(0.0, self.busy_seconds, self.cores * self.clock)  # noqa: E731
        monkeypatch.setattr(busy_module, "read_seconds", read)

    def budget(self, share: float = 0.015) -> Budget:
        return Budget(share, time_used=lambda: self.used)

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self._pass(seconds)

    def work(self, seconds: float) -> None:
        self.used += seconds
        self._pass(seconds)

    def _pass(self, seconds: float) -> None:
        self.clock += seconds
        self.busy_seconds += self.cores * self.busy * seconds


def storm(machine: Machine, share: float, answers: int = 2_000, each: float = 0.1) -> None:
    limited = machine.budget(share)
    for _ in range(answers):
        machine.work(each)
        while seconds := limited.seconds_to_wait():
            machine.sleep(seconds)


def test_a_storm_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, busy=1.0)
    storm(machine, share=0.015)
    assert machine.used - BURST <= 0.016 * machine.clock, "after the burst, its share"
    assert machine.used >= 0.01 * machine.clock, "and not much less"


def test_a_burst_is_not_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, busy=1.0)
    storm(machine, share=0.015, answers=int(10 * BURST) - 2)
    assert machine.slept == 0


@pytest.mark.parametrize("each", [0.5, 1.5])
def test_long_answers_are_paid_for(monkeypatch: pytest.MonkeyPatch, each: float) -> None:
    machine = Machine(monkeypatch, busy=1.0)
    storm(machine, share=0.015, answers=100, each=each)
    assert machine.used - BURST <= 0.016 * machine.clock


def test_work_that_is_done_once_is_exempt_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, busy=1.0)
    limited = machine.budget()
    for _ in range(int(MOST_EXEMPT / 4)):
        machine.work(4.0)
        limited.exempt(4.0)
        assert limited.seconds_to_wait() == 0
    for _ in range(80):
        machine.work(1.0)
        limited.exempt(1.0)
        while seconds := limited.seconds_to_wait():
            machine.sleep(seconds)
    assert machine.used - MOST_EXEMPT - BURST <= 0.016 * machine.clock


def test_the_work_of_other_threads_is_not_counted_for_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch and the verdicts have their own threads, before and while requests are answered."""
    machine = Machine(monkeypatch, busy=1.0)
    server = Server(Path())
    working = threading.Thread(target=lambda: sum(i * i for i in range(3_000_000)))
    working.start()
    while working.is_alive():
        machine.sleep(0.001)
        assert server.budget.seconds_to_wait() == 0
    machine.sleep(1.0)
    server.seconds_reading += 3.0
    assert server.budget.seconds_to_wait() > 0, "reading curves is work for requests"


def test_time_used_on_an_idle_machine_costs_nothing_later(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, busy=0.2)
    limited = machine.budget()
    for _ in range(100):
        machine.work(1.0)
        assert limited.seconds_to_wait() == 0
    machine.busy = 1.0
    machine.sleep(1.0)
    machine.work(1.0)
    assert limited.seconds_to_wait() == 0, "there is all of a burst"


def test_a_long_time_with_little_to_do_costs_nothing_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server without requests does a little work for hours, less than its share."""
    machine = Machine(monkeypatch, busy=1.0)
    limited = machine.budget()
    machine.sleep(7_200)
    machine.used += 0.01 * 7_200
    assert limited.seconds_to_wait() == 0


def test_nobody_waits_longer_than_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, busy=1.0)
    limited = machine.budget()
    machine.sleep(1.0)
    machine.work(1_000.0)
    while seconds := limited.seconds_to_wait():
        machine.sleep(seconds)
    assert machine.slept < 1.0 + PATIENCE + 1.0


@pytest.mark.parametrize("each", [0.02, 0.066, 0.3])
def test_an_idle_machine(monkeypatch: pytest.MonkeyPatch, each: float) -> None:
    """Also if answers take less time than a tick of the system's counter."""
    machine = Machine(monkeypatch, busy=0.6)
    storm(machine, share=0.015, each=each)
    assert machine.slept == 0


def test_requests_pass_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many simultaneous requests, those still open are answered within the share, and abandoned ones are skipped."""
    machine = Machine(monkeypatch, busy=1.0)

    waiting: list[int] = [0]

    async def wait(disconnected: asyncio.Task, seconds: float) -> None:
        waiting.append(waiting[-1] + 1)
        until = machine.clock + seconds
        await asyncio.sleep(0)  # others may begin to wait meanwhile: the time passes for all of them
        machine.sleep(max(0.0, until - machine.clock))
        waiting.append(waiting[-1] - 1)

    async def answer(scope: dict, receive: object, send: object) -> None:
        machine.work(0.1)

    async def stays() -> dict:
        await asyncio.Event().wait()
        return {}

    async def leaves() -> dict:
        return {"type": "http.disconnect"}

    asked = []
    seconds_to_wait = Budget.seconds_to_wait
    monkeypatch.setattr(Budget, "seconds_to_wait", lambda self: asked.append(1) or seconds_to_wait(self))

    async def storm() -> None:
        gate = Gate(answer, machine.budget())
        gone = [gate({"type": "http"}, leaves, None) for _ in range(500)]
        await asyncio.gather(*[gate({"type": "http"}, stays, None) for _ in range(500)], *gone)

    monkeypatch.setattr(budget, "_wait", wait)
    asyncio.run(storm())
    assert machine.used == pytest.approx(50)
    assert len(asked) < 2_000, "waiting costs next to nothing, however many wait"
    assert max(waiting) == 1, "the first waits for the budget, all others wait for the first"
    assert machine.used - BURST <= 0.016 * machine.clock
