"""A real server in its own process, and requests that no browser would send."""

import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any


class Answer:
    """Status, headers and body."""

    def __init__(self, response: HTTPResponse):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    def json(self) -> Any:
        return json.loads(self.body)


class Address:
    """The address of a server."""

    def __init__(self, port: int, process: subprocess.Popen, terminal: Path):
        self.port, self.process, self.terminal = port, process, terminal

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    def said(self) -> str:
        """What the terminal shows of its errors so far."""
        return self.terminal.read_text(encoding="utf-8")

    def get(self, path: str, method: str = "GET", timeout: float = 120, **headers: str) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in ({"Host": f"localhost:{self.port}"} | headers).items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders()
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def raw(self, data: bytes) -> bytes:
        """Send these bytes, and return whatever comes back."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=120) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@contextmanager
def serving(
    directory: Path | None,
    *more: str,
    program: Sequence[str] = (sys.executable, "-m", "recombine"),
    cwd: Path | None = None,
) -> Iterator[Address]:
    place = () if directory is None else (str(directory),)
    share = () if "--share" in more else ("--share", "1")  # the other tests make the machine busy
    command = [*program, "serve", *place, "--port", "0", *share, *more]
    with (
        tempfile.NamedTemporaryFile("w") as terminal,  # a pipe that nobody reads fills up, and stops the server
        subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=terminal, text=True) as process,
    ):
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("http://localhost:"), Path(terminal.name).read_text()
        try:
            yield Address(int(line.strip().rsplit(":", 1)[1]), process, Path(terminal.name))
        finally:
            process.terminate()
            process.communicate(timeout=30)


def impatient(ask: float = 600.0, read: float = 600.0) -> tuple[str, ...]:
    """The command, with other limits for clients that are slow."""
    code = (
        "import sys\n"
        "import recombine.serve.connection as connection\n"
        "from recombine.cli.main import main\n"
        f"connection.SECONDS_TO_ASK, connection.SECONDS_TO_READ = {ask}, {read}\n"
        "sys.exit(main())\n"
    )
    return (sys.executable, "-c", code)
