"""Limits the processor time of the server on a busy machine: a burst, then a small share."""

import asyncio
import time
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from recombine.serve.busy import Busyness

SHARE = 0.01  # of one core, in the long run, for the explorer; everything else gets half as much
BURST = 6.0  # seconds of a core that may accumulate without requests: enough for a hundred answers of two models
MOST_EXEMPT = 60.0  # seconds of a core, in total, for work that is done only once: loading and compiling models
SHORTEST_WAIT = 0.01
LONGEST_WAIT = 10.0  # seconds, after which the budget checks again whether the machine is busy
PATIENCE = 120.0  # seconds: the longest wait, however long the previous answer took


class Budget:
    """Limits the processor time that is used while the machine is busy.

    Call `seconds_to_wait` between two pieces of work. `time_used` gives the processor time that is counted.
    """

    def __init__(
        self,
        share: float = SHARE,
        burst: float = BURST,
        patience: float = PATIENCE,
        time_used: Callable[[], float] = time.process_time,
        busyness: Busyness | None = None,
    ) -> None:
        self.share, self.left, self.burst = share, burst, burst
        self.largest_debt, self.time_used = patience * share, time_used
        self.exempted = 0.0
        self.clock, self.counted = time.monotonic(), time_used()
        self.busyness = busyness or Busyness()

    def seconds_to_wait(self) -> float:
        """How long to wait before asking again; 0 unless the machine is busy and the budget is used up."""
        clock, used, busy = time.monotonic(), self.time_used(), self.busyness.is_busy()
        spent = used - self.counted if busy else 0.0  # on an idle machine, time is free
        left = self.left + self.share * (clock - self.clock) - spent
        self.left = min(self.burst, max(left, -self.largest_debt))
        self.clock, self.counted = clock, used
        return min(LONGEST_WAIT, max(SHORTEST_WAIT, -self.left / self.share)) if self.left < 0 and busy else 0.0

    def exempt(self, seconds: float) -> None:
        """Do not count the last `seconds` of work, because it is done only once; up to `MOST_EXEMPT` in total."""
        seconds = min(seconds, MOST_EXEMPT - self.exempted)
        self.exempted += seconds
        self.counted += seconds


class Gate:
    """An ASGI application around another. It lets requests in one after the other, as the budget allows."""

    def __init__(self, app: ASGIApp, budget: Budget):
        self.app, self.budget, self.turn = app, budget, asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            disconnected = asyncio.create_task(_disconnection(receive))
            try:
                async with self.turn:  # the first request waits for the budget, all others wait for the first
                    while not disconnected.done() and (seconds := self.budget.seconds_to_wait()):
                        await _wait(disconnected, seconds)
                if disconnected.done():  # the client has gone: no other request has to wait for its answer
                    return
            finally:
                disconnected.cancel()
        await self.app(scope, receive, send)


async def _disconnection(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _wait(disconnected: asyncio.Task[None], seconds: float) -> None:
    await asyncio.wait([disconnected], timeout=seconds)
