"""How much of a busy machine the explorer may take: bursts, and after them next to nothing."""

import os
import time
from pathlib import Path

SHARE = 0.015  # of one core, in the long run
BURST = 3.0  # seconds of a core that are saved up while nobody asks
BUSY = 0.9  # of all cores together
LONGEST = 10.0  # seconds, until it looks again whether the machine is busy


class Allowance:
    """`wait` between two pieces of work: it returns at once unless the machine is busy and the allowance is used up."""

    def __init__(self, share: float = SHARE) -> None:
        self.share, self.left = share, BURST
        self.clock, self.used = time.monotonic(), time.process_time()
        self.before = _busy_and_all()

    def wait(self) -> None:
        clock, used = time.monotonic(), time.process_time()
        self.left = min(BURST, self.left + self.share * (clock - self.clock)) - (used - self.used)
        self.left = max(self.left, -LONGEST * self.share)  # loading a model is not held against it for minutes
        self.clock, self.used = clock, used
        if self.left < 0 and self._is_busy():
            time.sleep(-self.left / self.share)

    def _is_busy(self) -> bool:
        """Since the last time it was asked, this process aside."""
        (busy, total), (was_busy, was_total) = _busy_and_all(), self.before
        if total - was_total < 0.2 * os.sysconf("SC_CLK_TCK"):  # too short a while to tell
            return True
        self.before = (busy, total)
        return busy - was_busy > BUSY * (total - was_total)


def _busy_and_all() -> tuple[int, int]:
    """Ticks of all cores since the machine started: busy ones, and all. Unknown systems are never busy."""
    try:
        line = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    except OSError:
        return 0, 0
    ticks = [int(word) for word in line.split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)
