"""How fast something goes now, and how long the rest will take."""

from collections import deque

SECONDS = 60.0  # what is older than that no longer counts


class Rate:
    """What is done per second. Time before the first advance is compiling, and counts for nothing."""

    def __init__(self, first: int = 0):
        self.seen: deque[tuple[float, int]] = deque()
        self.first = first

    def update(self, done: int, now: float) -> None:
        if not self.seen and done <= self.first:
            return
        self.seen.append((now, done))
        while len(self.seen) > 2 and now - self.seen[1][0] >= SECONDS:
            self.seen.popleft()

    @property
    def per_second(self) -> float | None:
        """None until it is known."""
        if len(self.seen) < 2:
            return None
        (start, before), (now, done) = self.seen[0], self.seen[-1]
        return (done - before) / (now - start) if done > before and now > start else None


def duration(seconds: float) -> str:
    """For people: seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"
