"""Clients that ask for nothing, ask for a half, or read nothing: they keep nobody out, and cost little memory."""

import resource
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import cycle, islice
from pathlib import Path

import pytest

from tests.serve.server import Address, impatient, serving

MANY = 1_000
USUAL_LIMIT = 1_024  # files that a process may open, on Linux
HEAD = b"GET %s HTTP/1.1\r\nHost: localhost\r\n"
HALVES = (
    b"",
    b"GET / HT",
    HEAD % b"/",
    HEAD % b"/" + b"Content-Length: 999\r\n\r\n123",
    HEAD % b"/static/main.js" + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel",
    HEAD % b"/api/events?since=0" + b"Content-Length: 999\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999\r\n\r\n123",
)


@pytest.fixture(autouse=True)
def many_files() -> Iterator[None]:
    """The tests hold thousands of connections in one process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * MANY if hard == resource.RLIM_INFINITY else min(hard, 4 * MANY)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(server: Address, sent: bytes) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # little is on the way when nobody reads
    connection.settimeout(60)
    connection.connect(("127.0.0.1", server.port))
    with suppress(OSError):  # the server has closed it already
        connection.sendall(sent)
    return connection


def is_open(connection: socket.socket) -> bool:
    """Read what has come, and tell whether more can."""
    connection.setblocking(False)
    try:
        while connection.recv(1 << 16):
            pass
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def connections(server: Address) -> int:
    """How many connections the server has open, as the system tells it."""
    here = f"0100007F:{server.port:04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(line[1] == here and line[3] == "01" for line in lines)


def memory(server: Address) -> int:
    """Bytes of the server's memory."""
    return int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * resource.getpagesize()


def test_half_sent_requests_keep_nobody_out(tmp_path: Path) -> None:
    """A thousand are held, and a thread opens more all the time; the limit of time has not come yet."""
    patient = impatient()
    limited = ("sh", "-c", f'ulimit -S -n {USUAL_LIMIT}; exec "$@"', "sh", *patient)
    with serving(tmp_path, program=limited) as server, ExitStack() as opened:
        assert server.get("/").status == 200
        before, ended = server.said(), threading.Event()
        for half in islice(cycle(HALVES), MANY):
            opened.enter_context(connect(server, half))

        def open_more() -> None:
            for half in cycle(HALVES):
                if ended.is_set():
                    return
                with connect(server, half):
                    time.sleep(0.001)

        opening = threading.Thread(target=open_more)
        opening.start()
        try:
            for path in ("/", "/static/main.js", "/api/runs", "/static/vega.js"):
                assert retried(server, path) == 200, path
        finally:
            ended.set()
            opening.join()
        assert server.said() == before


def retried(server: Address, path: str) -> int:
    """The status of an answer. A connection that is reset is tried again, as browsers do.

    The server ends the oldest connection whose request is not whole; on a busy machine that may be this one.
    """
    for attempt in range(5):
        with suppress(ConnectionResetError):
            return server.get(path).status
        time.sleep(0.1 * attempt)
    raise AssertionError(f"{path}: reset five times")


def test_a_request_comes_in_time_or_not_at_all(tmp_path: Path) -> None:
    """Also one that comes byte by byte. A stream whose request was whole stays open."""
    with serving(tmp_path, program=impatient(ask=1.0)) as server, ExitStack() as opened:
        stream = opened.enter_context(connect(server, HEAD % b"/api/events?since=0" + b"\r\n"))
        slow = [opened.enter_context(connect(server, half)) for half in HALVES for _ in range(4)]
        deadline = time.monotonic() + 120
        while left := [connection for connection in slow if is_open(connection)]:
            assert time.monotonic() < deadline, f"{len(left)} of {len(slow)} are still open"
            for connection in left[::2]:
                with suppress(OSError):
                    connection.send(b"x")
            time.sleep(0.1)
        assert is_open(stream)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_clients_that_read_nothing(tmp_path: Path) -> None:
    """Each asks for much, one thing after the other, and for the news. What the server keeps for them is bounded, and
    they are ended."""
    much = (HEAD % b"/static/vega.js" + b"\r\n") * 40
    with serving(tmp_path, program=impatient(read=3.0)) as server, ExitStack() as opened:
        size = len(server.get("/static/vega.js").body)
        before, count = memory(server), 200
        for _ in range(count):
            opened.enter_context(connect(server, much))
        most, deadline = 0, time.monotonic() + 120
        while connections(server) > 0:
            most = max(most, memory(server))
            assert time.monotonic() < deadline, f"{connections(server)} of {count} are still open"
            time.sleep(0.05)
        assert most - before < count * size / 4
        assert server.get("/").status == 200


def test_it_leaves_while_they_are_there(tmp_path: Path) -> None:
    """And prints nothing more."""
    whole = [HEAD % b"/api/events?since=0" + b"\r\n", (HEAD % b"/static/vega.js" + b"\r\n") * 40]
    with serving(tmp_path, program=impatient()) as server, ExitStack() as opened:
        assert server.get("/").status == 200
        before = server.said()
        for sent in (*HALVES, *whole) * 3:
            opened.enter_context(connect(server, sent))
        assert server.get("/static/vega.js").status == 200
        server.process.terminate()
        server.process.wait(60)
        assert server.said() == before
