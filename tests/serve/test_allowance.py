"""On a busy machine the server takes its share and no more; on an idle one it is never held back."""

import asyncio
import os

import pytest

from recombine.serve import allowance
from recombine.serve.allowance import BURST, Allowance, Gate


class Machine:
    """A clock, the processor time that was used, and how busy the cores are, all by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, busy: float):
        self.clock = self.used = self.slept = 0.0
        monkeypatch.setattr(allowance.time, "monotonic", lambda: self.clock)
        monkeypatch.setattr(allowance.time, "process_time", lambda: self.used)
        ticks = 2 * os.sysconf("SC_CLK_TCK")  # of two cores
        monkeypatch.setattr(
            allowance, "_busy_and_all", lambda: (int(ticks * busy * self.clock), int(ticks * self.clock))
        )

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.clock += seconds

    def work(self, seconds: float) -> None:
        self.used += seconds
        self.clock += seconds


def storm(machine: Machine, share: float, answers: int = 2_000, each: float = 0.1) -> None:
    limited = Allowance(share)
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


@pytest.mark.parametrize("each", [0.02, 0.066, 0.3])
def test_an_idle_machine(monkeypatch: pytest.MonkeyPatch, each: float) -> None:
    """Also where answers come faster than the system counts its ticks."""
    machine = Machine(monkeypatch, busy=0.6)
    storm(machine, share=0.015, each=each)
    assert machine.slept == 0


def test_requests_pass_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many come at once: who stays is answered, within the share; who has gone is passed over."""
    machine = Machine(monkeypatch, busy=1.0)

    async def rest(gone: asyncio.Task, seconds: float) -> None:
        until = machine.clock + seconds
        await asyncio.sleep(0)  # others may come to rest meanwhile: the time passes for all of them
        machine.clock = max(machine.clock, until)

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
        gate = Gate(answer, share=0.015)
        gone = [gate({"type": "http"}, leaves, None) for _ in range(500)]
        await asyncio.gather(*[gate({"type": "http"}, stays, None) for _ in range(500)], *gone)

    monkeypatch.setattr(allowance, "_rest", rest)
    asyncio.run(storm())
    assert machine.used == pytest.approx(50)
    assert len(asked) < 2_000, "waiting costs next to nothing, however many wait"
    assert machine.used - BURST <= 0.016 * machine.clock
