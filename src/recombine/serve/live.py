"""The watch on the directory, and the news of it, numbered: who was away misses nothing."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress

from recombine.serve.library import Library

SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_BETWEEN_SIGNS = 15.0  # of life, so that nobody in between hangs up
MOST_NEWS = 2_000


class Watch:
    """Looks at the directory once a second, for all clients together."""

    def __init__(self, library: Library):
        self.library = library
        self.news: deque[tuple[int, str]] = deque(maxlen=MOST_NEWS)
        self.number = 0
        self.changed = asyncio.Event()

    async def look_once(self) -> None:
        changed, gone = await asyncio.to_thread(self._refresh)
        if changed or gone:
            self.number += 1
            told = {"changed": self.library.table(changed), "gone": gone, "sweeps": self.library.sweeps()}
            self.news.append((self.number, json.dumps(told, allow_nan=False)))
            self.changed.set()
            self.changed = asyncio.Event()

    async def go_on(self) -> None:
        while True:
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
            await self.look_once()

    def _refresh(self) -> tuple[list[str], list[str]]:
        try:
            return self.library.refresh()
        except OSError:  # something was taken away while we looked: it is seen the next time
            return [], []

    async def follow(self, since: int) -> AsyncIterator[str]:
        """News after number `since`, as server-sent events. Who has missed too much is told to begin again."""
        if since > self.number or (self.news and since < self.news[0][0] - 1):
            yield "event: again\ndata: {}\n\n"
            since = self.number
        while True:
            waiting = self.changed
            for number, told in [entry for entry in self.news if entry[0] > since]:
                yield f"id: {number}\ndata: {told}\n\n"
                since = number
            if self.number > since:
                continue
            try:
                await asyncio.wait_for(waiting.wait(), SECONDS_BETWEEN_SIGNS)
            except TimeoutError:
                yield ": still here\n\n"


async def cancelled(task: asyncio.Task) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
