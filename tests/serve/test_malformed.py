"""Requests that are no HTTP: the server answers or closes, stays up, and prints nothing in its terminal."""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from random import Random

import pytest

from tests.serve.malformed import BODY, HOST, KINDS
from tests.serve.server import Address, impatient, serving

EACH = 40  # of each kind
RESET = struct.pack("ii", 1, 0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    with serving(tmp_path_factory.mktemp("runs"), program=impatient(ask=1.0)) as address:
        assert address.get("/").status == 200  # it has printed what it prints at its start
        yield address


def send(connection: socket.socket, data: bytes, rng: Random) -> None:
    """In one piece or in two; then the client waits, has said all, or has gone."""
    cut = rng.choice([0, rng.randrange(len(data) + 1)])
    with suppress(OSError):  # closed before all was sent
        connection.sendall(data[:cut])
        connection.sendall(data[cut:])
        match rng.randrange(4):
            case 0:
                connection.shutdown(socket.SHUT_WR)
            case 1:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                connection.close()


def answer(connection: socket.socket) -> bytes:
    """The first bytes that come back; none where the server closes."""
    with suppress(ConnectionError):
        return connection.recv(1 << 16) if connection.fileno() >= 0 else b""
    return b""


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_nonsense(server: Address, kind: Callable[[Random], bytes]) -> None:
    before, rng = server.said(), Random(kind.__name__)
    with ExitStack() as opened:
        sent = []
        for _ in range(EACH):
            connection = opened.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            sent.append((connection, kind(rng)))
            send(*sent[-1], rng)
        for connection, data in sent:
            assert answer(connection)[:9] in (b"HTTP/1.1 ", b""), data
        assert server.get("/").status == 200
    assert server.said() == before


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /api/events?since=0 HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + BODY,
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"x" * 300_000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"\0" * 100,
    ],
    ids=["chunk", "chunk of a stream", "0.9", "length", "large", "TLS", "NUL"],
)
def test_nonsense_is_refused(server: Address, data: bytes) -> None:
    """With 400, or the connection is closed without the page."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        with suppress(OSError):
            connection.sendall(data)
        said = b""
        with suppress(ConnectionError):
            while more := connection.recv(1 << 16):
                said += more
    assert said[:12] in (b"HTTP/1.1 400", b"")
