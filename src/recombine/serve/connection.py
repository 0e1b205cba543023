"""The connection: uvicorn's, with limits for a client that is slow, and with no traceback for one that sends nonsense.

uvicorn limits how long a connection may rest between two requests, and nothing else. Here a request must arrive whole
within a time, and an answer must be read at some pace. Only a limited number of connections may owe a request: each
further one closes the oldest. So a client that opens thousands keeps nobody else out.
"""

import asyncio

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS_TO_ASK = 10.0  # for the head of a request and its body together
SECONDS_TO_READ = 20.0  # for a piece of an answer
PIECE = 1 << 16  # bytes
LARGEST_HEAD = 1 << 16  # bytes: the page never asks for half as much
MOST_ASKING = 100  # a browser opens six
BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
ASKING = (h11.IDLE, h11.SEND_BODY)


class Connection(H11Protocol):
    """A connection that the server ends when its client owes something for too long."""

    asking: asyncio.TimerHandle | None = None
    reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # `pause_writing` is called as soon as a byte waits for the client
        self._limit_asking()

    def handle_events(self) -> None:
        super().handle_events()
        self._limit_asking()

    def _limit_asking(self) -> None:
        """Start the clock when a request is owed, and stop it when the request has arrived."""
        if self.conn.their_state not in ASKING or self.transport.is_closing():
            self.asking = _stop(self.asking)
        elif self.asking is None:
            self.asking = self.loop.call_later(SECONDS_TO_ASK, self.end)
            asking = [one for one in self.connections if isinstance(one, Connection) and one.asking]
            if len(asking) > MOST_ASKING:
                min(asking, key=lambda one: one.asking.when() if one.asking else 0.0).end()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.reading = self.reading or self.loop.call_later(SECONDS_TO_READ, self.end)

    def resume_writing(self) -> None:
        self.reading = _stop(self.reading)
        super().resume_writing()

    def end(self) -> None:
        """Close at once: what is still to be sent is dropped."""
        self.asking, self.reading = _stop(self.asking), _stop(self.reading)
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.asking, self.reading = _stop(self.asking), _stop(self.reading)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer nonsense; close where the answer to its first half has begun."""
        if self.cycle is not None:  # the application may still answer: what it sends from now on goes nowhere
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(BAD_REQUEST)  # not by h11, which is in no state to send it
        self.transport.close()


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def in_pieces(app: ASGIApp) -> ASGIApp:
    """The application, with large answers in pieces: uvicorn takes the next one when the client has read the last."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_pieces(message: Message) -> None:
            body = message.get("body", b"")
            *starts, last = range(0, len(body), PIECE) or [0]
            for start in starts:
                await send({**message, "body": body[start : start + PIECE], "more_body": True})
                await asyncio.sleep(0)  # others have their turn, and the news that the client has gone
            await send({**message, "body": body[last:]} if starts else message)

        await app(scope, receive, send_pieces)

    return call
