"""How busy the machine is, and whether that is others' doing."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

BUSY = 0.75  # of the cores: a training on several threads never fills them, and is held up all the same
OTHERS = 0.4  # of the cores: with less, nobody trains, and it is the server alone that makes them busy
TICKS = os.sysconf("SC_CLK_TCK")


class Ticks(NamedTuple):
    """Of the cores that this process may run on, since the machine started."""

    ours: int = 0
    busy: int = 0
    all: int = 0


class Load:
    """`is_busy` tells whether the cores are taken, and not by the server alone. `ours` are its own processes.

    Where there is no /proc/stat, and where a container has a quota instead of cores of its own, nothing is ever busy.
    """

    def __init__(self, ours: Callable[[], Iterable[int | None]] = lambda: (os.getpid(),)) -> None:
        self.ours = ours
        self.before, self.busy = read_ticks(ours()), False

    def is_busy(self) -> bool:
        """Since the last time it was asked; or, where that is too short a while to tell, as it was then."""
        now = read_ticks(self.ours())
        ours, busy, total = (a - b for a, b in zip(now, self.before, strict=True))
        if total >= 0.2 * TICKS:
            self.before, self.busy = now, busy > BUSY * total and busy - ours > OTHERS * total
        return self.busy


def read_ticks(ours: Iterable[int | None]) -> Ticks:
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
        cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    except (OSError, AttributeError):  # another system
        return Ticks()
    ticks = [[int(word) for word in line.split()[1:9]] for line in lines if line.split(" ", 1)[0] in cores]
    total = sum(map(sum, ticks))
    idle = sum(core[3] + core[4] for core in ticks)
    return Ticks(sum(_ticks(process) for process in ours if process), total - idle, total)


def _ticks(process: int) -> int:
    """That a process has had, with all its threads."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0
    return int(fields[11]) + int(fields[12])
