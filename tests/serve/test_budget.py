"""On a busy machine the server takes its share and no more; on an idle one it is never held back."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from recombine.cli.serve import Serve
from recombine.serve import budget as allowance
from recombine.serve import busy as load
from recombine.serve.app import Server
from recombine.serve.budget import BURST, FORGIVEN, PATIENCE, SHARE, Allowance, Gate


class Machine:
    """A clock, the processor time that was used, and how busy others keep the cores, all by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, busy: float):
        self.clock = self.used = self.slept = self.busy_ticks = 0.0
        self.busy, self.ticks = busy, 2 * os.sysconf("SC_CLK_TCK")  # of two cores
        monkeypatch.setattr("time.monotonic", lambda: self.clock)
        ticks = lambda ours: load.Ticks(0, int(self.busy_ticks), int(self.ticks * self.clock))  # noqa: E731
        monkeypatch.setattr(load, "read_ticks", ticks)

    def allowance(self, share: float = 0.015) -> Allowance:
        return Allowance(share, used=lambda: self.used)

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self._pass(seconds)

    def work(self, seconds: float) -> None:
        self.used += seconds
        self._pass(seconds)

    def _pass(self, seconds: float) -> None:
        self.clock += seconds
        self.busy_ticks += self.ticks * self.busy * seconds


def storm(machine: Machine, share: float, answers: int = 2_000, each: float = 0.1) -> None:
    limited = machine.allowance(share)
    for _ in range(answers):
        machine.work(each)
        while owed := limited.owed():
            machine.sleep(owed)


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


def test_what_is_done_once_is_forgiven_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, busy=1.0)
    limited = machine.allowance()
    for _ in range(int(FORGIVEN / 4)):
        machine.work(4.0)
        limited.forgive(4.0)
        assert limited.owed() == 0
    for _ in range(80):
        machine.work(1.0)
        limited.forgive(1.0)
        while owed := limited.owed():
            machine.sleep(owed)
    assert machine.used - FORGIVEN - BURST <= 0.016 * machine.clock


def test_what_others_use_is_not_held_against_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch, the verdicts and what draws run in threads of their own, before and while requests are answered."""
    machine = Machine(monkeypatch, busy=1.0)
    server = Server(Path())
    working = threading.Thread(target=lambda: sum(i * i for i in range(3_000_000)))
    working.start()
    while working.is_alive():
        machine.sleep(0.001)
        assert server.allowance.owed() == 0
    machine.sleep(1.0)
    server.reading += 3.0
    assert server.allowance.owed() > 0, "reading curves is for who asked"


def test_what_was_used_on_an_idle_machine_is_not_paid_for_later(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, busy=0.2)
    limited = machine.allowance()
    for _ in range(100):
        machine.work(1.0)
        assert limited.owed() == 0
    machine.busy = 1.0
    machine.sleep(1.0)
    machine.work(1.0)
    assert limited.owed() == 0, "there is all of a burst"


def test_a_long_time_with_little_to_do_is_not_held_against_who_comes_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that nobody asks has a little to do all the same, for hours; less than its share."""
    machine = Machine(monkeypatch, busy=1.0)
    limited = machine.allowance()
    machine.sleep(7_200)
    machine.used += 0.01 * 7_200
    assert limited.owed() == 0


def test_nobody_waits_longer_than_patience_has(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, busy=1.0)
    limited = machine.allowance()
    machine.sleep(1.0)
    machine.work(1_000.0)
    while owed := limited.owed():
        machine.sleep(owed)
    assert machine.slept < 1.0 + PATIENCE + 1.0


def test_the_share_of_the_command() -> None:
    assert Serve().share == SHARE


@pytest.mark.parametrize("each", [0.02, 0.066, 0.3])
def test_an_idle_machine(monkeypatch: pytest.MonkeyPatch, each: float) -> None:
    """Also where answers come faster than the system counts its ticks."""
    machine = Machine(monkeypatch, busy=0.6)
    storm(machine, share=0.015, each=each)
    assert machine.slept == 0


def test_requests_pass_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many come at once: who stays is answered, within the share; who has gone is passed over."""
    machine = Machine(monkeypatch, busy=1.0)

    resting: list[int] = [0]

    async def rest(gone: asyncio.Task, seconds: float) -> None:
        resting.append(resting[-1] + 1)
        until = machine.clock + seconds
        await asyncio.sleep(0)  # others may come to rest meanwhile: the time passes for all of them
        machine.sleep(max(0.0, until - machine.clock))
        resting.append(resting[-1] - 1)

    async def answer(scope: dict, receive: object, send: object) -> None:
        machine.work(0.1)

    async def stays() -> dict:
        await asyncio.Event().wait()
        return {}

    async def leaves() -> dict:
        return {"type": "http.disconnect"}

    asked = []
    owed = Allowance.owed
    monkeypatch.setattr(Allowance, "owed", lambda self: asked.append(1) or owed(self))

    async def storm() -> None:
        gate = Gate(answer, machine.allowance())
        gone = [gate({"type": "http"}, leaves, None) for _ in range(500)]
        await asyncio.gather(*[gate({"type": "http"}, stays, None) for _ in range(500)], *gone)

    monkeypatch.setattr(allowance, "_rest", rest)
    asyncio.run(storm())
    assert machine.used == pytest.approx(50)
    assert len(asked) < 2_000, "waiting costs next to nothing, however many wait"
    assert max(resting) == 1, "one waits for the allowance, all others for that one"
    assert machine.used - BURST <= 0.016 * machine.clock
