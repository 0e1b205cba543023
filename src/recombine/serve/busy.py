"""Measures how busy the machine is, and whether processes other than the server's cause it."""

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

import psutil

BUSY = 0.75  # share of the cores in use: a training run on several threads never fills all of them, but needs them
OTHERS = 0.4  # share of the cores in use by other processes: below it, nothing is training
LEAST_SECONDS = 0.2  # of all cores together: a shorter time tells nothing


class CoreSeconds(NamedTuple):
    """Processor seconds since the machine started, on the cores that this process may run on."""

    ours: float = 0.0
    busy: float = 0.0
    total: float = 0.0


class Busyness:
    """Tells whether the cores are in use by more than the server.

    `our_processes` gives the ids of the server's own processes. The machine never counts as busy where the system does
    not tell, or where a container has a quota of processor time instead of its own cores.
    """

    def __init__(self, our_processes: Callable[[], Iterable[int | None]] = lambda: (os.getpid(),)) -> None:
        self.our_processes = our_processes
        self.before, self.busy = read_seconds(our_processes()), False

    def is_busy(self) -> bool:
        """Whether the machine was busy since the last call. A call too soon after the last one repeats its answer."""
        now = read_seconds(self.our_processes())
        ours, busy, total = (a - b for a, b in zip(now, self.before, strict=True))
        if total >= LEAST_SECONDS:
            self.before, self.busy = now, busy > BUSY * total and busy - ours > OTHERS * total
        return self.busy


def read_seconds(our_processes: Iterable[int | None]) -> CoreSeconds:
    """The seconds until now; all zero where the system does not tell."""
    try:
        cores = psutil.cpu_times(percpu=True)
    except (OSError, psutil.Error):
        return CoreSeconds()
    if hasattr(os, "sched_getaffinity"):  # Linux. Elsewhere a process may run on every core
        cores = [cores[core] for core in os.sched_getaffinity(0) if core < len(cores)]
    idle = sum(core.idle + getattr(core, "iowait", 0.0) for core in cores)
    # Linux counts the time of virtual machines twice: as `guest`, and as part of `user`.
    total = sum(sum(core) - getattr(core, "guest", 0.0) - getattr(core, "guest_nice", 0.0) for core in cores)
    return CoreSeconds(sum(_process_seconds(process) for process in our_processes if process), total - idle, total)


def _process_seconds(process: int) -> float:
    """The processor seconds that a process has used, with all its threads."""
    try:
        used = psutil.Process(process).cpu_times()
    except (OSError, psutil.Error):  # the process has ended
        return 0.0
    return used.user + used.system
