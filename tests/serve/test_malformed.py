"""Requests that are malformed."""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from random import Random

import pytest

from tests.serve.server import Address, impatient, serving

PATHS = (b"/", b"/api/runs", b"/api/events?since=0", b"/static/story.js", b"/nothing")
HOST = b"Host: localhost\r\n"
WORDS = (b"", b"-1", b"+1", b"0x10", b"1e3", b"zz", b"\0", b"1 1", b"5, 6", b"9" * 40, b"f" * 40, b"\xff", b"\xc2\xb2")
BODY = b"5\r\nhello\r\n0\r\n\r\n"


def whole(rng: Random, *headers: bytes, method: bytes | None = None) -> bytes:
    """A head that is right, but for the headers that are given."""
    line = b"%s %s HTTP/1.1\r\n" % (method or rng.choice([b"GET", b"GET", b"HEAD", b"POST"]), rng.choice(PATHS))
    return line + HOST + b"".join(header + b"\r\n" for header in headers) + b"\r\n"


def bad_line(rng: Random) -> bytes:
    path = rng.choice(PATHS)
    lines = [b"GET", b"GET " + path, path, b"", b"GET  %s HTTP/1.1" % path, b"GET %s HTTP/1.1 x" % path]
    lines += [
        b"G\0T %s HTTP/1.1" % path,
        b"GET %s HTTP/11" % path,
        b"GET %s HTTP/9.9" % path,
        b"GET %s http/1.1" % path,
    ]
    lines += [b"GET %s\0 HTTP/1.1" % path, b"GET %s\xff HTTP/1.1" % path, b"GET\t%s\tHTTP/1.1" % path, b"G" * 90_000]
    lines += [b"GET /%s HTTP/1.1" % (b"x" * 300_000), b"\x1bc %s HTTP/1.1" % path, b"\r\n\r\n\r\n\r\nGET", b":"]
    return rng.choice(lines) + b"\r\n" + HOST + b"\r\n"


def old_request(rng: Random) -> bytes:
    """HTTP/0.9: a line alone, with no headers."""
    return b"GET %s\r\n" % rng.choice(PATHS) + rng.choice([b"", b"\r\n", b"\n"])


def bad_chunk(rng: Random) -> bytes:
    size = rng.choice(WORDS)
    bodies = [
        size + b"\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello" + size + b"\r\n",
        b"5;%s\r\nhel" % size,
        b"\r\n",
        BODY * 2,
    ]
    bodies += [
        b"5\r\nhello\r\n%s\r\n" % size,
        b"0\r\n%s\r\n\r\n" % size,
        b"0\r\nX: %s\r\n\r\n" % size,
        b"5\nhello\n0\n\n",
    ]
    return whole(rng, b"Transfer-Encoding: chunked") + rng.choice(bodies)


def bad_length(rng: Random) -> bytes:
    one, other = rng.choice(WORDS), rng.choice(WORDS)
    kinds = [[b"Content-Length: " + one], [b"Content-Length: " + one, b"Content-Length: " + other]]
    kinds += [[b"Content-Length: 4"], [b"Content-Length: 400"], [b"Content-Length: 3", b"Transfer-Encoding: chunked"]]
    kinds += [
        [b"Transfer-Encoding: " + one],
        [b"Transfer-Encoding: gzip, chunked"],
        [b"Transfer-Encoding: chunked"] * 2,
    ]
    return whole(rng, *rng.choice(kinds)) + rng.choice([b"", b"hello", BODY])


def bad_header(rng: Random) -> bytes:
    word = rng.choice(WORDS)
    headers = [b"X-Large: " + b"x" * 300_000, b"no colon", b"X : 1", b" folded", b": nameless", b"X\0: 1", b"X: \0"]
    headers += [b"\r\n".join(b"X-%d: 1" % number for number in range(10_000)), b"X: 1\n\nY: 2", b"X: 1\rY: 2"]
    headers += [
        b"Host: evil.example",
        b"\xc3\xa4: 1",
        b"Last-Event-ID: " + word,
        b"Origin: " + word,
        b"Cookie: " + word,
    ]
    headers += [
        b"Connection: Upgrade\r\nUpgrade: websocket",
        b"Connection: Upgrade\r\nUpgrade: h2c",
        b"Expect: " + word,
    ]
    headers += [
        b"Expect: 100-continue\r\nContent-Length: 5",
        b"Connection: close",
        b"Connection: " + word,
        b"Range: " + word,
    ]
    return whole(rng, rng.choice(headers), method=rng.choice([b"GET", b"HEAD", b"CONNECT", b"TRACE", b"OPTIONS"]))


def other_protocol(rng: Random) -> bytes:
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(500)  # TLS
    others = [hello, b"SSH-2.0-OpenSSH_9.6\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", b"\0" * 2_000]
    others += [b"*1\r\n$4\r\nPING\r\n", b"EHLO localhost\r\n", b"\xffSMB" + rng.randbytes(60), rng.randbytes(3_000)]
    return rng.choice(others)


def pipelined(rng: Random) -> bytes:
    """A whole request, then nonsense before it is answered."""
    rest = rng.choice([other_protocol, bad_line, bad_chunk, bad_length, old_request])
    return whole(rng, method=rng.choice([b"GET", b"HEAD"])) * rng.choice([1, 2, 20]) + rest(rng)


def mutated(rng: Random) -> bytes:
    """A request with bytes that are changed, left out, doubled or cut off."""
    data = bytearray(whole(rng, b"Transfer-Encoding: chunked") + BODY)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[at] = rng.randrange(256)
            case 1:
                del data[at + 1 : at + rng.randint(2, 9)]
            case 2:
                data[at:at] = data[at : at + rng.randint(1, 9)]
            case _:
                del data[at + 1 :]
    return bytes(data)


KINDS: tuple[Callable[[Random], bytes], ...] = (
    bad_line, old_request, bad_chunk, bad_length, bad_header, other_protocol, pipelined, mutated,
)  # fmt: skip


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
def test_nonsense(server: Address, kind: Callable[[Random], bytes], attacked: Callable) -> None:
    attacked("bytes that are not a valid request", EACH)
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
def test_nonsense_is_refused(server: Address, data: bytes, attacked: Callable) -> None:
    """With 400, or the connection is closed without the page."""
    attacked("bytes that are not a valid request")
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        with suppress(OSError):
            connection.sendall(data)
        said = b""
        with suppress(ConnectionError):
            while more := connection.recv(1 << 16):
                said += more
    assert said[:12] in (b"HTTP/1.1 400", b"")
