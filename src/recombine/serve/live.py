"""The watch on the directory, and the news of it, numbered: who was away misses nothing."""

import asyncio
import time
import traceback
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress

from recombine.record.codec import encode
from recombine.serve.library import Library

SECONDS_BETWEEN_LOOKS = 1.0
PACE = 100.0  # times as long as a look takes, if that is longer: a large directory costs no more than a small one,
SECONDS_AT_MOST = 10.0  # up to this
SECONDS_BETWEEN_SIGNS = 15.0  # of life, so that nobody in between hangs up
MOST_NEWS = 1_000
MOST_KEPT = 1 << 23  # characters of them


class Watch:
    """Looks at the directory once a second, for all clients together, while there are any."""

    def __init__(self, library: Library):
        self.library = library
        self.news: deque[tuple[int, str]] = deque()
        self.kept = 0
        self.number = int(time.time())  # above any that an earlier server has given: there is at most one a second
        self.followers = 0
        self.cost, self.looked = 0.0, -SECONDS_BETWEEN_LOOKS
        self.turn = asyncio.Lock()
        self.changed = asyncio.Event()

    async def look_once(self) -> None:
        """Unless somebody has just looked."""
        async with self.turn:
            pause = min(PACE * self.cost, SECONDS_AT_MOST)
            if time.monotonic() - self.looked < max(SECONDS_BETWEEN_LOOKS, pause):
                return
            told = await asyncio.to_thread(self._look)
            self.looked = time.monotonic()
            if told is not None:
                self._tell(told)

    def _look(self) -> str | None:
        start = time.thread_time()
        changed, gone = self.library.refresh()
        told = None
        if changed or gone:
            news = {"changed": self.library.table(changed), "gone": gone, "sweeps": self.library.sweeps()}
            told = encode(news)
        self.cost = time.thread_time() - start
        return told

    def _tell(self, told: str) -> None:
        self.number += 1
        self.news.append((self.number, told))
        self.kept += len(told)
        while len(self.news) > 1 and (len(self.news) > MOST_NEWS or self.kept > MOST_KEPT):
            self.kept -= len(self.news.popleft()[1])
        self.changed.set()
        self.changed = asyncio.Event()

    async def go_on(self) -> None:
        while True:
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
            if self.followers:
                try:
                    await self.look_once()
                except Exception:  # not to be silent about, nor to be deaf after
                    traceback.print_exc()

    async def follow(self, since: int) -> AsyncIterator[str]:
        """News after number `since`, as server-sent events. Who has missed too much is told to begin again."""
        self.followers += 1
        try:
            yield ": welcome\n\n"
            while True:
                if not self.number - len(self.news) <= since <= self.number:
                    yield "event: again\ndata: {}\n\n"
                    since = self.number
                waiting = self.changed
                for number, told in [self.news[i] for i in range(since - self.number, 0)]:
                    yield f"id: {number}\ndata: {told}\n\n"
                    since = number
                if self.number > since:
                    continue
                try:
                    await asyncio.wait_for(waiting.wait(), SECONDS_BETWEEN_SIGNS)
                except TimeoutError:
                    yield ": still here\n\n"
        finally:
            self.followers -= 1


async def cancelled(task: asyncio.Task) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
