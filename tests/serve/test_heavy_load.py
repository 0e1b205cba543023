"""Many clients at once, and clients that are slow."""

import os
import resource
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import cycle, islice
from pathlib import Path

import pytest

from recombine.bench.contender import enter
from recombine.bench.contender_process import ContenderProcess
from recombine.config.preset import preset_config
from recombine.serve.budget import SHARE
from tests.serve.server import Address, copy_demo_run, impatient, serving

EARLY = 10  # turns that do not count
RUNS = ("transformer-connected+-seed0", "hypertransformer-connected+-seed0")
STORM = """
import os, sys, threading, urllib.parse
from contextlib import suppress
from http.client import HTTPConnection
os.nice(19)
with suppress(OSError), open("/proc/self/autogroup", "w") as file:  # a session's own, where it means nothing otherwise
    file.write("19")
port, runs = int(sys.argv[1]), [urllib.parse.quote(name) for name in sys.argv[2:]]
named = "&".join(f"run={name}" for name in runs)
paths = [f"/api/explore?{named}&weights={i % 7 + 1},1,0,0,0,0&length=31&draw={i}" for i in range(40)]
paths += [f"{path}&latent1={i % 5},0,0,0,0,0" for i, path in enumerate(paths)]  # the second is the hypertransformer's
paths += ["/api/runs", f"/api/curves?{named}", f"/api/difference?one={runs[0]}&other={runs[1]}", "/static/story.js"] * 5
paths += [f"/api/models?{named}", "/api/claims?study=.", "/api/claims?study=none", "/nothing"] * 5
def ask(first):
    i = first
    while True:
        try:
            connection = HTTPConnection("127.0.0.1", port, timeout=600)
            connection.request("GET", paths[i % len(paths)], headers={"Host": "evil.example"} if i % 11 == 0 else {})
            connection.getresponse().read()
            connection.close()
        except OSError:
            return
        i += 7
def follow():
    connection = HTTPConnection("127.0.0.1", port, timeout=600)
    with suppress(OSError):
        connection.request("GET", "/api/events?since=0")
        answer = connection.getresponse()
        while answer.readline():
            pass
for _ in range(8):
    threading.Thread(target=follow, daemon=True).start()
for k in range(16):
    threading.Thread(target=ask, args=(5 * k,), daemon=True).start()
sys.stdin.read()
"""


def storm(port: int) -> subprocess.Popen:
    """Sixteen clients that ask as fast as they are answered, and eight that watch, in a low-priority process."""
    command = [sys.executable, "-c", STORM, str(port), *RUNS]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def processor_time(process: int) -> float:
    """Processor seconds that a process and its children have used."""
    found = 0.0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = path.read_text().rpartition(")")[2].split()
            if process in (int(path.parent.name), int(fields[1])):
                found += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


@pytest.mark.slow
def test_a_storm_beside_a_training(tmp_path: Path) -> None:
    """Training with and without many requests, in turns. The speeds are printed; the share of the cores that the server
    and its models use must be bounded.

    RECOMBINE_STORM_TURNS and RECOMBINE_STORM_STEPS set the number and the length of the turns.
    """
    turns, steps = (int(os.environ.get(f"RECOMBINE_STORM_{name}", few)) for name, few in (("TURNS", 3), ("STEPS", 60)))
    for name in RUNS:
        copy_demo_run(f"paper/{name}", tmp_path / name)
    config = preset_config("paper", "transformer")
    rates: dict[bool, list[float]] = {False: [], True: []}
    taken = lasted = 0.0
    with (
        serving(tmp_path, "--share", str(SHARE)) as server,
        ContenderProcess(enter("fast", config, os.cpu_count() or 1)) as training,
    ):
        training.await_ready(900)
        named = "&".join(f"run={name.replace('+', '%2B')}" for name in RUNS)
        assert server.get(f"/api/explore?{named}&weights=1,1,0,0,0,0&length=31", timeout=900).status == 200
        for turn in range(-EARLY, 2 * turns):  # the first use up what was saved for bursts, and do not count
            stormy = turn < 0 or turn % 2 == 1
            clients = storm(server.port) if stormy else None
            try:
                if stormy:
                    time.sleep(1)
                start, had = time.monotonic(), processor_time(server.process.pid)
                training.begin_turn(steps)
                seconds = training.end_turn(900).seconds
                had, lasts = processor_time(server.process.pid) - had, time.monotonic() - start
                if turn >= 0:
                    rates[stormy].append(steps / seconds)
                if turn > 0 and stormy:
                    taken += had
                    lasted += lasts
                told = f"{steps / seconds:.2f} steps/s, the server had {had / lasts / (os.cpu_count() or 1):.1%}"
                print("with" if stormy else "without", told, flush=True)  # noqa: T201
            finally:
                if clients is not None:
                    clients.communicate(timeout=60)
    ratios = [with_it / without for without, with_it in zip(rates[False], rates[True], strict=True)]
    print(f"with / without, median of neighbours: {statistics.median(ratios):.3f}")  # noqa: T201
    part = taken / lasted / (os.cpu_count() or 1)
    print(f"the server and its models had {part:.2%} of all cores during the storms")  # noqa: T201
    assert part < 0.02


MANY = 1_000
USUAL_LIMIT = 1_024  # files that a process may open, on Linux
HEAD = b"GET %s HTTP/1.1\r\nHost: localhost\r\n"
MUCH = (HEAD % b"/api/story" + b"\r\n") * 40
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


def test_half_sent_requests_keep_nobody_out(tmp_path: Path, attacked: Callable) -> None:
    """A thousand are held, and a thread opens more all the time; the limit of time has not come yet."""
    patient = impatient()
    limited = ("sh", "-c", f'ulimit -S -n {USUAL_LIMIT}; exec "$@"', "sh", *patient)
    with serving(tmp_path, program=limited) as server, ExitStack() as opened:
        assert server.get("/").status == 200
        before, ended = server.said(), threading.Event()
        for half in islice(cycle(HALVES), MANY):
            opened.enter_context(connect(server, half))
        attacked("a request that is half sent and held open", MANY)

        def open_more() -> None:
            for half in cycle(HALVES):
                if ended.is_set():
                    return
                with connect(server, half):
                    time.sleep(0.001)

        opening = threading.Thread(target=open_more)
        opening.start()
        try:
            for path in ("/", "/static/main.js", "/api/runs", "/static/story.js"):
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
def test_clients_that_read_nothing() -> None:
    """Each asks for much, one thing after the other, and for the news. What the server keeps for them is bounded, and
    they are ended."""
    with serving(None, "--demo", program=impatient(read=3.0)) as server, ExitStack() as opened:
        size = len(server.get("/api/story").body)
        before, count = memory(server), 200
        for _ in range(count):
            opened.enter_context(connect(server, MUCH))
        most, deadline = 0, time.monotonic() + 120
        while connections(server) > 0:
            most = max(most, memory(server))
            assert time.monotonic() < deadline, f"{connections(server)} of {count} are still open"
            time.sleep(0.05)
        assert most - before < count * size / 4
        assert server.get("/").status == 200


def test_it_leaves_while_they_are_there() -> None:
    """And prints nothing more."""
    whole = [HEAD % b"/api/events?since=0" + b"\r\n", MUCH]
    with serving(None, "--demo", program=impatient()) as server, ExitStack() as opened:
        assert server.get("/").status == 200
        before = server.said()
        for sent in (*HALVES, *whole) * 3:
            opened.enter_context(connect(server, sent))
        assert server.get("/api/story").status == 200
        server.process.terminate()
        server.process.wait(60)
        assert server.said() == before
