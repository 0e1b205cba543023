"""Every client gets all events in order, also after a disconnection, and the server's memory does not grow."""

import asyncio
import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import aclosing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from recombine.serve import watch
from recombine.serve.library import Changes, Library
from recombine.serve.watch import Watch, cancel
from tests.serve.server import Address, copy_demo_run, serving

CLIENTS = 50


class Client(threading.Thread):
    """Follows the events as a browser does, and keeps the resulting table."""

    def __init__(self, server: Address, start: dict):
        super().__init__(daemon=True)
        self.table = {run["name"]: run for run in start["runs"]}
        self.numbers = [start["number"]]
        self.others: list[str] = []
        self.steps: dict[str, list[int]] = {}
        self.connection = HTTPConnection("127.0.0.1", server.port, timeout=300)
        self.connection.request("GET", f"/api/events?since={start['number']}")
        self.answer = self.connection.getresponse()
        self.start()

    def run(self) -> None:
        try:
            for line in iter(self.answer.readline, b""):
                if line.startswith(b"id: "):
                    self.numbers.append(int(line[4:]))
                elif line.startswith(b"event: "):
                    self.others.append(line.decode())
                elif line.startswith(b"data: "):
                    self.take(json.loads(line[6:]))
        except (OSError, ValueError, AttributeError):  # the connection was closed under it
            pass

    def leave(self) -> None:
        assert self.connection.sock is not None
        self.connection.sock.shutdown(socket.SHUT_RDWR)  # to close it would wait for the thread that reads
        self.join()
        self.connection.close()

    def take(self, news: dict) -> None:
        for name in news.get("gone", ()):
            del self.table[name]
        for run in news.get("changed", ()):
            self.table[run["name"]] = run
            self.steps.setdefault(run["name"], []).append(run["step"])


def rows(path: Path) -> Iterator[bytes]:
    """An endless series of rows, as training would write them."""
    row = json.loads(path.read_text().splitlines()[-1])
    while True:
        row["step"] += 1
        yield json.dumps(row).encode() + b"\n"


def memory(process: int) -> int:
    """The memory of a process, in kilobytes."""
    return next(
        int(line.split()[1])
        for line in Path(f"/proc/{process}/status").read_text().splitlines()
        if line.startswith("VmRSS")
    )


def watched(place: Path, seconds: float, runs: int = 20) -> list[int]:
    """Fifty clients watch runs that grow by half a row at a time, appear and disappear. Returns the server's memory."""
    for i in range(runs):
        copy_demo_run("quick/hypertransformer-connected+-seed0", place / f"run{i}")
    with serving(place) as server:
        start = server.get("/api/runs").json()
        clients = [Client(server, start) for _ in range(CLIENTS)]
        files = [place / f"run{i}" / "metrics.jsonl" for i in range(runs)]
        growing = [(file, rows(file)) for file in files]
        sizes, end, round_ = [memory(server.process.pid)], time.monotonic() + seconds, 0
        while time.monotonic() < end:
            round_ += 1
            for file, more in growing:
                row = next(more)
                with file.open("ab") as opened:
                    opened.write(row[: len(row) // 2])
                    opened.flush()
                    opened.write(row[len(row) // 2 :])
            if round_ % 2:
                copy_demo_run("quick/transformer-connected+-seed0", place / "comes and goes")
            else:
                shutil.rmtree(place / "comes and goes")
            sizes.append(memory(server.process.pid))
            time.sleep(0.5)
        last = {file.parent.name: json.loads(file.read_text().splitlines()[-1])["step"] for file in files}
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not all(
            client.table[name]["step"] == step for client in clients for name, step in last.items()
        ):
            time.sleep(0.2)
        now = server.get("/api/runs").json()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and any(client.numbers[-1] < now["number"] for client in clients):
            time.sleep(0.2)
        for client in clients:
            assert client.is_alive(), "still connected"
            assert client.others == [], "nobody has to begin again"
            assert client.numbers == list(range(start["number"], now["number"] + 1)), "every one, in order, once"
            assert client.steps == clients[0].steps
            assert client.table == {run["name"]: run for run in now["runs"]}
        assert all(steps == sorted(set(steps)) for name, steps in clients[0].steps.items() if name in last)
        updates = len(clients[0].numbers) - 1
        print(f"\n{CLIENTS} clients, {seconds:.0f} s, {runs} runs that grow: {updates} updates each; MB", end=" ")  # noqa: T201
        print(*[size >> 10 for size in sizes[:: max(1, len(sizes) // 12)]])  # noqa: T201
        for client in clients:
            client.leave()
        return sizes


def test_fifty_clients(tmp_path: Path) -> None:
    watched(tmp_path, seconds=3.0, runs=5)


@pytest.mark.slow
def test_fifty_clients_for_two_minutes(tmp_path: Path) -> None:
    sizes = watched(tmp_path, seconds=120.0)
    early, late = sizes[len(sizes) // 4], max(sizes[len(sizes) // 2 :])
    assert late - early < 8_192, "kilobytes"


class Directory(Library):
    """A library in which a run is always missing."""

    def refresh(self) -> Changes:
        return Changes([], ["something"])


def test_a_client_that_was_away_gets_what_it_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SECONDS_BETWEEN_LOOKS", 0.0)
    monkeypatch.setattr(watch, "PACE", 0.0)
    monkeypatch.setattr(watch, "MOST_NEWS", 10)

    async def told(watch: Watch, since: int, many: int) -> list[str]:
        async with aclosing(watch.follow(since)) as news:
            found = [await anext(news) for _ in range(many + 1)]
        return [part.splitlines()[0] for part in found[1:]]

    before = int(time.time())

    async def scenario() -> None:
        watch = Watch(Directory(tmp_path))
        first = watch.number
        assert first >= before, "so that a server's numbers are above those of one that has ended"
        for _ in range(10):
            await watch.look_once()
        assert await told(watch, first, 10) == [f"id: {first + i}" for i in range(1, 11)]
        assert await told(watch, first + 7, 3) == [f"id: {first + i}" for i in range(8, 11)]
        assert await told(watch, first - 1, 1) == ["event: again"], "of an earlier server"
        assert await told(watch, first + 11, 1) == ["event: again"], "of a server whose clock was ahead"
        await watch.look_once()
        assert await told(watch, first, 1) == ["event: again"], "too long ago"
        assert await told(watch, first + 1, 10) == [f"id: {first + i}" for i in range(2, 12)]
        assert watch.followers == 0

    asyncio.run(scenario())


def test_the_news_that_are_kept_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SECONDS_BETWEEN_LOOKS", 0.0)
    monkeypatch.setattr(watch, "PACE", 0.0)
    monkeypatch.setattr(watch, "MOST_CHARACTERS", 1_000)

    async def scenario() -> None:
        watch = Watch(Directory(tmp_path))
        for _ in range(100):
            await watch.look_once()
            assert sum(len(told) for _, told in watch.news) == watch.characters <= 1_000
        assert len(watch.news) > 5

    asyncio.run(scenario())


def test_nobody_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no client connected, the server does not look at the directory; with one, it looks repeatedly."""
    monkeypatch.setattr(watch, "SECONDS_BETWEEN_LOOKS", 0.001)
    monkeypatch.setattr(watch, "PACE", 0.0)

    async def scenario() -> None:
        watch = Watch(Directory(tmp_path))
        watching = asyncio.create_task(watch.keep_looking())
        before = watch.number
        await asyncio.sleep(0.2)
        assert watch.number == before
        async with aclosing(watch.follow(before)) as news:
            for _ in range(3):
                await anext(news)
        assert watch.number >= before + 2
        await asyncio.sleep(0.2)  # for a look that was under way
        after = watch.number
        await asyncio.sleep(0.2)
        assert watch.number == after
        await cancel(watching)

    asyncio.run(scenario())


def test_somebody_has_just_looked(tmp_path: Path) -> None:
    async def scenario() -> None:
        watch = Watch(Directory(tmp_path))
        before = watch.number
        await watch.look_once()
        await watch.look_once()
        assert watch.number == before + 1

    asyncio.run(scenario())
