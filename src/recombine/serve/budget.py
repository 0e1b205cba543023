"""How much of a busy machine the server may take: bursts, and after them next to nothing."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from recombine.serve.busy import Load

SHARE = 0.01  # of one core, in the long run: for the explorer, and half as much for the rest
BURST = 6.0  # seconds of a core that are saved up while nobody asks: a hundred answers of two models
FORGIVEN = 60.0  # seconds of a core, in all, for what is only done once: loading and compiling some models
SHORTEST = 0.01
LONGEST = 10.0  # seconds, until it looks again whether the machine is busy
PATIENCE = 120.0  # seconds that nobody waits longer than, after however long an answer


class Allowance:
    """`owed` between two pieces of work: seconds to wait, and then to ask again; 0 unless the machine is busy and the
    allowance is used up. `used` tells the processor time that is counted."""

    def __init__(
        self,
        share: float = SHARE,
        burst: float = BURST,
        patience: float = PATIENCE,
        used: Callable[[], float] = time.process_time,
        load: Load | None = None,
    ) -> None:
        self.share, self.left, self.burst, self.most_owed, self.used = share, burst, burst, patience * share, used
        self.forgiven = 0.0
        self.clock, self.counted = time.monotonic(), used()
        self.load = load or Load()

    def owed(self) -> float:
        clock, used, busy = time.monotonic(), self.used(), self.load.is_busy()
        spent = used - self.counted if busy else 0.0  # what is used while nobody needs it costs nothing
        left = self.left + self.share * (clock - self.clock) - spent
        self.left = min(self.burst, max(left, -self.most_owed))
        self.clock, self.counted = clock, used
        return min(LONGEST, max(SHORTEST, -self.left / self.share)) if self.left < 0 and busy else 0.0

    def forgive(self, seconds: float) -> None:
        """Do not count what was used just now, and only had to be done once; as long as that is not too much in all."""
        seconds = min(seconds, FORGIVEN - self.forgiven)
        self.forgiven += seconds
        self.counted += seconds


class Gate:
    """An ASGI application around another: requests are let in one after the other, when the allowance allows."""

    def __init__(self, app: Any, allowance: Allowance):
        self.app, self.allowance, self.turn = app, allowance, asyncio.Lock()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            gone = asyncio.create_task(_gone(receive))
            try:
                async with self.turn:  # one waits for the allowance, all others for that one
                    while not gone.done() and (owed := self.allowance.owed()):
                        await _rest(gone, owed)
                if gone.done():  # nobody has to wait for those who no longer do
                    return
            finally:
                gone.cancel()
        await self.app(scope, receive, send)


async def _gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _rest(gone: asyncio.Task[None], seconds: float) -> None:
    await asyncio.wait([gone], timeout=seconds)
