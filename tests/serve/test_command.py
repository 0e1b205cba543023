"""The command: what it says, how busy it makes the machine, and how it ends."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import psutil
import pytest

from recombine.cli.serve import Serve
from recombine.errors import InputError
from recombine.serve.busy import Busyness, read_seconds


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"directory": Path("missing")}, "no such directory"),
        ({"directory": Path(__file__)}, "is a file"),
        ({"directory": Path(), "demo": True}, "either a directory or --demo"),
        ({"directory": Path("runs"), "demo": True}, "either a directory or --demo"),
        ({"demo": True, "port": 70_000}, "port = 70000"),
        ({"demo": True, "port": -1}, "port = -1"),
        ({"demo": True, "share": 0.0}, "share = 0.0"),
        ({"demo": True, "share": float("nan")}, "share = nan"),
    ],
)
def test_bad_input(given: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Serve(**given).run()


def test_a_port_that_is_taken() -> None:
    """In its own process: the command sets the threads before JAX starts, and lowers its priority."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "recombine", "serve", "--demo", "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert f"port = {port}" in line
    assert "--port 0 takes any that is free" in line


def test_it_opens_a_browser(tmp_path: Path) -> None:
    """The server answers even if the browser stays in the foreground, as in a terminal."""
    (tmp_path / "browser").write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/asked\nexec sleep 60\n')
    (tmp_path / "browser").chmod(0o755)
    command = [sys.executable, "-m", "recombine", "serve", "--demo", "--port", "0", "--open"]
    environment = os.environ | {"BROWSER": f"{tmp_path}/browser %s"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            port = int(address.rsplit(":", 1)[1])
            with socket.create_connection(("127.0.0.1", port), timeout=60) as asking:
                asking.sendall(f"GET / HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n".encode())
                assert asking.recv(1 << 16).startswith(b"HTTP/1.1 200")
            deadline = time.monotonic() + 30
            while not (tmp_path / "asked").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            assert (tmp_path / "asked").read_text().strip() == address
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_leaves_without_a_word(how: signal.Signals) -> None:
    """Also while a page is still open."""
    command = [sys.executable, "-m", "recombine", "serve", "--demo", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as listening:
            listening.sendall(f"GET /api/events?since=0 HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
            assert listening.recv(1 << 16).startswith(b"HTTP/1.1 200")
            process.send_signal(how)
            _, said = process.communicate(timeout=60)
    assert said == "Press Ctrl-C to stop.\n"


class Core(NamedTuple):
    """The counters of a core on Linux that matter here."""

    user: float
    idle: float
    iowait: float = 0.0
    guest: float = 0.0
    guest_nice: float = 0.0


class System:
    """The counters of some cores and of one process, set by hand: seconds that each core was busy and idle."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cores: int, mine: set[int]):
        self.busy, self.idle, self.own = [0.0] * cores, [0.0] * cores, 0.0
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: mine, raising=False)
        monkeypatch.setattr(psutil, "cpu_times", lambda percpu: list(map(Core, self.busy, self.idle)))
        times = lambda: SimpleNamespace(user=self.own, system=0.0)  # noqa: E731
        monkeypatch.setattr(psutil, "Process", lambda process: SimpleNamespace(cpu_times=times))


@pytest.mark.parametrize(
    ("others", "own", "busy"),
    [
        ([1.0, 1.0], 0.0, True),
        ([1.0, 0.0], 0.0, False),
        ([1.0, 0.0], 0.45, False),
        ([1.0, 0.0], 1.0, True),
        ([0.0, 0.0], 2.0, False),
        ([0.3, 0.0], 1.7, False),
        ([0.9, 0.8], 0.3, True),
        ([0.8, 0.6], 0.05, False),
    ],
)
def test_others(monkeypatch: pytest.MonkeyPatch, others: list[float], own: float, busy: bool) -> None:
    """On two cores for a second: the seconds that other processes used of each, and the server of both."""
    system = System(monkeypatch, 2, {0, 1})
    watched = Busyness(lambda: (7, None))
    spare = [1 - one for one in others]
    system.own = own
    for i in range(2):
        taken = min(spare[i], own)
        own -= taken
        system.busy[i], system.idle[i] = others[i] + taken, spare[i] - taken
    assert watched.is_busy() is busy
    system.busy[0] += 0.01
    assert watched.is_busy() is busy, "too short a time to tell"


@pytest.mark.parametrize(("at", "busy"), [(2, True), (0, False)])
def test_cores_of_an_allocation(monkeypatch: pytest.MonkeyPatch, at: int, busy: bool) -> None:
    """Two cores of eight: work on the others does not count."""
    system = System(monkeypatch, 8, {2, 3})
    watched = Busyness(lambda: ())
    system.idle = [1.0] * 8
    for i in (at, at + 1):
        system.busy[i], system.idle[i] = 1.0, 0.0
    assert watched.is_busy() is busy


def test_this_machine() -> None:
    """The real counters: the work of this process counts as the server's own."""
    found = read_seconds((os.getpid(), None, 0))
    assert found.ours == pytest.approx(time.process_time(), abs=0.1)
    assert found.ours <= found.busy < found.total


def test_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    """No affinity, and no counter of waiting for the disk: every core counts."""

    class MacCore(NamedTuple):
        user: float
        nice: float
        system: float
        idle: float

    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: [MacCore(1.0, 2.0, 3.0, 4.0), MacCore(0.0, 0.0, 0.0, 10.0)])
    assert read_seconds(()) == (0.0, 6.0, 20.0)


def test_linux_counts_virtual_machines_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1}, raising=False)
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: [Core(9.0, 9.0), Core(5.0, 3.0, 1.0, 2.0, 1.0)])
    assert read_seconds(()) == (0.0, 5.0, 9.0)


def test_a_system_that_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(percpu: bool) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil, "cpu_times", refuse)
    assert Busyness().is_busy() is False
