"""A link that replaces something below the served directory, after it was found, is never followed."""

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest

from recombine.errors import InputError
from recombine.files import NotAFile, read_file
from recombine.no_links import names_below, open_below
from recombine.record.codec import encode
from recombine.run import load
from recombine.run.load import load_model
from recombine.serve import live_verdicts, watch
from recombine.serve.app import make_app
from recombine.serve.explorer.explorer import Explorer
from recombine.serve.library import Library
from recombine.storage import archive
from recombine.storage.checkpoint import DamagedCheckpoint, list_checkpoints, read_checkpoint
from recombine.storage.reader import read_run
from recombine.storage.reference_files import reference_file
from tests.serve.server import exchange, is_foreign, make_place, swapping

# What a link takes the place of, and where it leads outside.
LINKED = (
    "study",
    "study/run",
    "study/run/checkpoints",
    "study/run/config.toml",
    "study/run/metrics.jsonl",
    "study/run/status.json",
    "study/references",
    "study/sweep.jsonl",
    "study/kept.zip",
)
LOOKING = ("open", "stat", "lstat", "scandir", "listdir", "readlink")  # every way of `os` to look at a path


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("original")
    make_place(place)
    return place


@pytest.fixture
def place(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "place")
    return tmp_path / "place"


def everything(library: Library) -> str:
    """Everything that the server reads from the runs, except what requires running a model."""
    archive._opened.clear()
    library.refresh()
    said = [encode(library.table()), encode(library.sweeps())]
    for name, seen in library.runs.items():
        said.append(encode(library.curve(name)))
        with suppress(InputError, OSError):  # it may be a link by now
            said.append(str(read_run(seen.source, scorecard=False)))
        for file in ("config.toml", "metrics.jsonl"):  # whatever is shown in their place
            with suppress(InputError, OSError):
                said.append(seen.source.read(file).decode())
        if seen.config is not None:
            with suppress(InputError, OSError):
                said.append(seen.source.read_beside("references", reference_file(seen.config), 1 << 20).decode())
        for path in list_checkpoints(seen.path / "checkpoints", library.root):
            said.append(path.name)
            with suppress(DamagedCheckpoint):
                said.append(str(read_checkpoint(path, library.root).texts))
    return "\n".join(said)


@pytest.mark.parametrize("linked", LINKED)
def test_what_is_outside_can_be_told_from_what_is_inside(place: Path, linked: str) -> None:
    """Without links, the two can be told apart; otherwise the tests below could not fail."""
    assert not is_foreign(everything(Library(place / "served")))
    exchange(place / "served" / linked, place / "outside" / linked)
    assert is_foreign(everything(Library(place / "served")))


@pytest.fixture
def operations(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable]:
    """`operations(act, at)` calls `act` before the operation number `at` on the disk; it returns the count so far."""
    state = {"count": 0, "at": -1, "act": None}

    def watched(real: Callable) -> Callable:
        def call(*args, **kwargs):
            number, state["count"] = state["count"], state["count"] + 1
            if number == state["at"]:
                state["at"] = -1
                state["act"]()
            return real(*args, **kwargs)

        return call

    def arm(act: Callable | None = None, at: int = -1) -> int:
        count, state["count"] = state["count"], 0
        state["at"], state["act"] = at, act
        return count

    with monkeypatch.context() as patched:
        for name in LOOKING:
            patched.setattr(os, name, watched(getattr(os, name)))
        yield arm


@pytest.mark.parametrize("linked", LINKED)
def test_a_link_at_every_instant(
    place: Path, operations: Callable, linked: str, torture: bool, attacked: Callable
) -> None:
    """The link appears before the first disk operation, before the second, …, before the last."""
    served, link = place / "served", place / "link"
    link.symlink_to(place / "outside" / linked)
    everything(Library(served))  # once before they are counted: the first time, Python reads files of its own
    operations()
    everything(Library(served))
    count = operations()
    assert count > 50
    for at in range(0, count, 1 if torture or linked == "study" else 6):
        attacked("a link put in a run's place before one disk operation of the server")
        operations(lambda: exchange(served / linked, link), at)
        said = everything(Library(served))
        assert not is_foreign(said), at
        operations()
        assert (served / linked).is_symlink(), at
        exchange(served / linked, link)


@pytest.mark.parametrize("linked", ["study", "study/run", "study/run/checkpoints"])
def test_a_model_at_every_instant(
    place: Path, operations: Callable, monkeypatch: pytest.MonkeyPatch, linked: str
) -> None:
    """Tested with the explorer's loading; the parameters themselves are not compared."""
    monkeypatch.setattr(load, "restore_state", lambda *_: SimpleNamespace(model=None))
    served, link = place / "served", place / "link"
    link.symlink_to(place / "outside" / linked)
    operations()
    assert load.load_model(served / "study" / "run", served).step == 12
    said = []
    for at in range(operations()):
        operations(lambda: exchange(served / linked, link), at)
        try:
            trained = load.load_model(served / "study" / "run", served)
            said.append(f"{trained.step} {trained.config.seed}")
        except (InputError, NotAFile) as error:
            said.append(str(error))
        operations()
        exchange(served / linked, link)
        assert not is_foreign(said[-1]), at
    assert "12 0" in said, "where the link comes after the last thing that is read"


@pytest.mark.parametrize("linked", LINKED)
def test_a_link_between_two_looks(place: Path, linked: str) -> None:
    """A run that was found before the exchange is requested after it, from the same library."""
    library, link = Library(place / "served"), place / "link"
    everything(library)
    link.symlink_to(place / "outside" / linked)
    exchange(place / "served" / linked, link)
    for seen in list(library.runs.values()):
        library.curve(seen.name, most=7)  # a curve that has not been read yet
        assert not is_foreign(encode(library.curve(seen.name, most=7)))
    assert not is_foreign(encode(library.sweeps()))
    assert not is_foreign(everything(library))
    exchange(place / "served" / linked, link)
    assert everything(library) == everything(Library(place / "served")), "nothing is kept of it"


@pytest.mark.parametrize("linked", ["study", "study/run", "study/run/checkpoints"])
def test_the_explorer_does_not_follow_a_link(place: Path, linked: str) -> None:
    served, link = place / "served", place / "link"
    explorer, path = Explorer(served), served / "study" / "run"
    link.symlink_to(place / "outside" / linked)
    exchange(served / linked, link)
    with pytest.raises(InputError, match=r"^run = "):
        explorer.describe(path)
    with pytest.raises((InputError, NotAFile)):
        load_model(path, served)
    assert load_model(path).step == 424242, "the user's own path is followed, as everywhere else"
    with pytest.raises(InputError, match=r"^run = "):
        explorer.describe(place / "outside" / "study" / "run")


def test_the_directory_itself_may_be_a_link(place: Path) -> None:
    named = place / "named"
    named.symlink_to(place / "served")
    library = Library(named)
    assert everything(library) == everything(Library(place / "served"))
    assert {run.state for run in library.table()} == {"done"}
    assert b"424242" not in read_file(named / "study/run/config.toml", below=named)


@pytest.mark.parametrize("path", ["../outside", "study/../../outside", "study/run/../../../outside", "/"])
def test_nothing_above(place: Path, path: str) -> None:
    served = place / "served"
    for target in (served / path, served / path / "study/run/config.toml"):
        with pytest.raises(NotAFile):
            read_file(target, below=served)
        assert names_below(target, served) == []
        with pytest.raises(OSError, match="is not below"):
            open_below(target, os.O_RDONLY, served)


@pytest.mark.parametrize("linked", ["study", "study/run", "study/kept.zip"])
def test_a_race(place: Path, linked: str, torture: bool, attacked: Callable) -> None:
    """A thread exchanges the two as fast as it can, while everything is read repeatedly."""
    served = place / "served"
    library, whole = Library(served), 0
    with swapping(served / linked, place / "outside" / linked):
        for i in range(3_000 if torture else 120):
            if i % 2:
                library = Library(served)
            attacked("a reading while links are swapped")
            said = everything(library)
            assert not is_foreign(said), i
            whole += "study/run" in said
    assert whole, "the run itself was never read"


def test_a_race_for_answers(place: Path, monkeypatch: pytest.MonkeyPatch, torture: bool, attacked: Callable) -> None:
    """The same through the server's routes, with no pause between looks at the directory."""
    monkeypatch.setattr(watch, "SECONDS_BETWEEN_LOOKS", 0.0)
    monkeypatch.setattr(watch, "PACE", 0.0)
    monkeypatch.setattr(live_verdicts, "PACE", 0.0)
    served, run = place / "served", {"run": "study/run"}
    paths = [
        ("/api/runs", {}),
        ("/api/curves", run | {"metric": "loss"}),
        ("/api/claims", {"study": "study"}),
        ("/api/difference", {"one": "study/run", "other": "study/run"}),
    ]
    answered = {path: 0 for path, _ in paths}

    async def ask() -> None:
        app = make_app(served, share=1.0)
        for i in range(4_000 if torture else 300):
            path, query = paths[i % len(paths)]
            attacked("an answer while links are swapped")
            status, body = await asgi(app, path, query)
            assert status in (200, 400), body
            assert not is_foreign(body), path
            answered[path] += status == 200 and "study" in f"{body}{json.loads(body)}"

    with swapping(served / "study" / "run", place / "outside" / "study" / "run"):
        asyncio.run(ask())
    assert answered["/api/runs"], answered


async def asgi(app: Callable, path: str, query: dict[str, str]) -> tuple[int, str]:
    """The status and the body of one answer."""
    said: list[dict] = []
    asked = asyncio.Event()

    async def receive() -> dict:
        if asked.is_set():
            await asyncio.Event().wait()
        asked.set()
        return {"type": "http.request"}

    async def send(message: dict) -> None:
        said.append(message)

    head = {"type": "http", "method": "GET", "http_version": "1.1", "headers": [(b"host", b"localhost:80")]}
    await app(head | {"path": path, "query_string": urlencode(query).encode()}, receive, send)
    return said[0]["status"], b"".join(message.get("body", b"") for message in said).decode()
