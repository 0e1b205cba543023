"""The machine is busy if other processes use the cores that the server may run on; its own work does not count."""

import os
import time
from pathlib import Path

import pytest

from recombine.serve import busy as module
from recombine.serve.busy import TICKS_PER_SECOND, Busyness


class System:
    """/proc/stat of some cores and /proc/PID/stat, set by hand: seconds that each core was busy and idle."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cores: int, mine: set[int]):
        self.busy, self.idle, self.own = [0.0] * cores, [0.0] * cores, 0.0
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: mine)
        monkeypatch.setattr(module, "Path", self.path)

    def path(self, name: str) -> "System":
        self.name = name
        return self

    def read_text(self, **_: str) -> str:
        def ticks(seconds: float) -> int:
            return int(seconds * TICKS_PER_SECOND)

        if self.name != "/proc/stat":
            return f"7 (a ) name) S {' '.join(['0'] * 10)} {ticks(self.own)} 0 0 0"
        pairs = list(zip(self.busy, self.idle, strict=True))
        lines = [f"cpu{i} {ticks(busy)} 0 0 {ticks(idle)} 0 0 0 0 0 0" for i, (busy, idle) in enumerate(pairs)]
        whole = f"cpu  {ticks(sum(self.busy))} 0 0 {ticks(sum(self.idle))} 0 0 0 0 0 0"
        return "\n".join([whole, *lines, "intr 1 2 3"])


@pytest.mark.parametrize(
    ("others", "own", "busy"),
    [
        ([1.0, 1.0], 0.0, True),
        ([1.0, 0.0], 0.0, False),
        ([1.0, 0.0], 0.45, False),
        ([1.0, 0.0], 1.0, True),
        ([0.0, 0.0], 2.0, False),
        ([0.3, 0.0], 1.7, False),
        ([0.9, 0.8], 0.3, True),
        ([0.8, 0.6], 0.05, False),
    ],
)
def test_others(monkeypatch: pytest.MonkeyPatch, others: list[float], own: float, busy: bool) -> None:
    """On two cores for a second: the seconds that other processes used of each, and the server of both."""
    system = System(monkeypatch, 2, {0, 1})
    watched = Busyness(lambda: (7, None))
    spare = [1 - one for one in others]
    system.own = own
    for i in range(2):
        taken = min(spare[i], own)
        own -= taken
        system.busy[i], system.idle[i] = others[i] + taken, spare[i] - taken
    assert watched.is_busy() is busy
    system.busy[0] += 0.01
    assert watched.is_busy() is busy, "too short a time to tell"


@pytest.mark.parametrize(("at", "busy"), [(2, True), (0, False)])
def test_cores_of_an_allocation(monkeypatch: pytest.MonkeyPatch, at: int, busy: bool) -> None:
    """Two cores of eight: work on the others does not count."""
    system = System(monkeypatch, 8, {2, 3})
    watched = Busyness(lambda: ())
    system.idle = [1.0] * 8
    for i in (at, at + 1):
        system.busy[i], system.idle[i] = 1.0, 0.0
    assert watched.is_busy() is busy


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="there is no /proc/stat on this system")
def test_this_machine() -> None:
    """The real files: the work of this process counts as the server's own."""
    found = module.read_ticks((os.getpid(), None, 0))
    assert found.ours == pytest.approx(time.process_time() * TICKS_PER_SECOND, abs=0.1 * TICKS_PER_SECOND)
    assert found.ours <= found.busy < found.total


def test_another_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Path", lambda name: Path("/no such directory"))
    assert Busyness().is_busy() is False
