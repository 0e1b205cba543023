"""How busy the machine is with work that is not the server's."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

BUSY = 0.9  # of what our own processes leave of the cores
TICKS = os.sysconf("SC_CLK_TCK")


class Load:
    """`is_busy` tells whether others want all the cores that this process may run on. `ours` are the server's own
    processes, whose work leaves the cores to nobody but is no reason to wait.

    Where there is no /proc/stat, and where a container has a quota instead of cores of its own, nothing is ever busy.
    """

    def __init__(self, ours: Callable[[], Iterable[int | None]] = lambda: (os.getpid(),)) -> None:
        self.ours = ours
        self.before, self.busy = _others_and_all(ours()), False

    def is_busy(self) -> bool:
        """Since the last time it was asked; or, where that is too short a while to tell, as it was then."""
        (others, left), (were, was) = _others_and_all(self.ours()), self.before
        if left - was >= 0.2 * TICKS:
            self.before, self.busy = (others, left), others - were > BUSY * (left - was)
        return self.busy


def _others_and_all(ours: Iterable[int | None]) -> tuple[int, int]:
    """Ticks of the cores since the machine started, but for those that our processes had: busy ones, and all."""
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
        cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    except (OSError, AttributeError):  # another system
        return 0, 0
    ticks = [[int(word) for word in line.split()[1:9]] for line in lines if line.split(" ", 1)[0] in cores]
    total = sum(map(sum, ticks))
    idle = sum(core[3] + core[4] for core in ticks)
    own = sum(_ticks(process) for process in ours if process)
    return total - idle - own, total - own


def _ticks(process: int) -> int:
    """That a process has had, with all its threads."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0
    return int(fields[11]) + int(fields[12])
