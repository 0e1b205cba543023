"""Measures how busy the machine is, and whether processes other than the server's cause it."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

BUSY = 0.75  # share of the cores in use: a training run on several threads never fills all of them, but needs them
OTHERS = 0.4  # share of the cores in use by other processes: below it, nothing is training
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class CoreTicks(NamedTuple):
    """Clock ticks since the machine started, on the cores that this process may run on."""

    ours: int = 0
    busy: int = 0
    total: int = 0


class Busyness:
    """Tells whether the cores are in use by more than the server.

    `our_processes` gives the ids of the server's own processes. The machine never counts as busy where there is no
    /proc/stat, or where a container has a quota of processor time instead of its own cores.
    """

    def __init__(self, our_processes: Callable[[], Iterable[int | None]] = lambda: (os.getpid(),)) -> None:
        self.our_processes = our_processes
        self.before, self.busy = read_ticks(our_processes()), False

    def is_busy(self) -> bool:
        """Whether the machine was busy since the last call. A call too soon after the last one repeats its answer."""
        now = read_ticks(self.our_processes())
        ours, busy, total = (a - b for a, b in zip(now, self.before, strict=True))
        if total >= 0.2 * TICKS_PER_SECOND:
            self.before, self.busy = now, busy > BUSY * total and busy - ours > OTHERS * total
        return self.busy


def read_ticks(our_processes: Iterable[int | None]) -> CoreTicks:
    """The ticks until now; all zero on a system without /proc/stat."""
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
        cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    except (OSError, AttributeError):  # not Linux
        return CoreTicks()
    ticks = [[int(word) for word in line.split()[1:9]] for line in lines if line.split(" ", 1)[0] in cores]
    total = sum(map(sum, ticks))
    idle = sum(core[3] + core[4] for core in ticks)
    return CoreTicks(sum(_process_ticks(process) for process in our_processes if process), total - idle, total)


def _process_ticks(process: int) -> int:
    """The ticks that a process has used, with all its threads."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:  # the process has ended
        return 0
    return int(fields[11]) + int(fields[12])
