"""The current speed of some work, and durations as text."""

from collections import deque

SECONDS = 60.0  # older measurements are ignored


class Rate:
    """Units of work per second. The time before the first advance is spent compiling, and is not counted."""

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
        """The current rate. None until it is known."""
        if len(self.seen) < 2:
            return None
        (start, before), (now, done) = self.seen[0], self.seen[-1]
        return (done - before) / (now - start) if done > before and now > start else None


def duration(seconds: float) -> str:
    """A duration as text, in seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"
