"""`recombine serve` on the command line: what it refuses, and how it exits."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recombine.cli.serve import Serve
from recombine.errors import InputError


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
