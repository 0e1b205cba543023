"""Watches the directory for changes, and sends numbered events to open pages."""

import asyncio
import time
import traceback
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress

from recombine.record.codec import Record, encode
from recombine.serve.library import Library, SweepProgress
from recombine.serve.run_summary import RunSummary

SECONDS_BETWEEN_LOOKS = 1.0
PACE = 100.0  # pause this many times as long as a look takes, so that a large directory costs no more than a small one,
LONGEST_PAUSE = 10.0  # up to this many seconds
SECONDS_BETWEEN_SIGNS = 15.0  # keep-alive messages, so that no proxy closes the connection
MOST_NEWS = 1_000
MOST_CHARACTERS = 1 << 23  # limit of the events that are kept


class DirectoryNews(Record, frozen=True):
    """The changes between two looks at the directory."""

    changed: tuple[RunSummary, ...]
    """The runs that are new or have changed."""
    gone: tuple[str, ...]
    sweeps: tuple[SweepProgress, ...]


class Watch:
    """Looks at the directory once a second while any client is connected, for all clients together.

    It keeps the latest events with their numbers, so that reconnecting clients miss no events.
    """

    def __init__(self, library: Library):
        self.library = library
        self.news: deque[tuple[int, str]] = deque()
        self.characters = 0
        self.number = int(time.time())  # above an earlier server's numbers: at most one event per second
        self.followers = 0
        self.cost, self.looked_at = 0.0, -SECONDS_BETWEEN_LOOKS
        self.turn = asyncio.Lock()
        self.changed = asyncio.Event()

    async def look_once(self) -> None:
        """Look at the directory, unless it was looked at just now."""
        async with self.turn:
            pause = min(PACE * self.cost, LONGEST_PAUSE)
            if time.monotonic() - self.looked_at < max(SECONDS_BETWEEN_LOOKS, pause):
                return
            news = await asyncio.to_thread(self._look)
            self.looked_at = time.monotonic()
            if news is not None:
                self._publish(news)

    def _look(self) -> str | None:
        """The changes as JSON. None if nothing has changed."""
        start = time.thread_time()
        changed, gone = self.library.refresh()
        news = None
        if changed or gone:
            table, sweeps = self.library.table(changed), self.library.sweeps()
            news = encode(DirectoryNews(tuple(table), tuple(gone), tuple(sweeps)))
        self.cost = time.thread_time() - start
        return news

    def _publish(self, news: str) -> None:
        self.number += 1
        self.news.append((self.number, news))
        self.characters += len(news)
        while len(self.news) > 1 and (len(self.news) > MOST_NEWS or self.characters > MOST_CHARACTERS):
            self.characters -= len(self.news.popleft()[1])
        self.changed.set()
        self.changed = asyncio.Event()

    async def keep_looking(self) -> None:
        """Look at the directory repeatedly while any client is connected."""
        while True:
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
            if self.followers:
                try:
                    await self.look_once()
                except Exception:  # report it, and continue
                    traceback.print_exc()

    async def follow(self, since: int) -> AsyncIterator[str]:
        """The events after number `since`, as server-sent events. A client that missed too many is told to reload."""
        self.followers += 1
        try:
            yield ": welcome\n\n"
            while True:
                if not self.number - len(self.news) <= since <= self.number:
                    yield "event: again\ndata: {}\n\n"
                    since = self.number
                next_change = self.changed
                for number, news in [self.news[i] for i in range(since - self.number, 0)]:
                    yield f"id: {number}\ndata: {news}\n\n"
                    since = number
                if self.number > since:
                    continue
                try:
                    await asyncio.wait_for(next_change.wait(), SECONDS_BETWEEN_SIGNS)
                except TimeoutError:
                    yield ": still here\n\n"
        finally:
            self.followers -= 1


async def cancel(task: asyncio.Task) -> None:
    """Cancel a task, and wait until it has ended."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
