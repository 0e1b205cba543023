"""The server reveals nothing outside the runs it found, answers no foreign page, and changes nothing."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from recombine.run.export import export_runs
from recombine.serve.app import Server, make_app
from recombine.serve.guard import HEADERS, POLICY, is_local
from recombine.serve.library import Library
from recombine.storage.archive import write_archive
from recombine.storage.source import open_run
from tests.reliability.small_run import finish
from tests.serve.server import Address, serving

SECRET = b"the secret of the house"

# Every route there is, so that none can be forgotten. {name} of /static is filled in.
ROUTES = [route.path for route in Server(Library(Path())).routes()]
PATHS = [path.replace("{name}", "main.js") for path in ROUTES]
PARAMETERS = ("run", "one", "other", "study", "since", "weights", "length", "draw", "fresh", "direction", "teacher_of",
              "metric", "points", "latent0", "latent1")  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in the served directory; a secret and another run outside it."""
    place = tmp_path_factory.mktemp("place")
    finish(place / "runs" / "one")
    (place / "secret.txt").write_bytes(SECRET)
    finish(place / "outside")
    config = place / "outside" / "config.toml"
    config.write_bytes(config.read_bytes() + b"# " + SECRET + b"\n")
    (place / "runs" / "link").symlink_to(place / "outside")
    (place / "runs" / "two").mkdir()
    for name in ("config.toml", "metrics.jsonl", "status.json"):
        (place / "runs" / "two" / name).symlink_to(place / "secret.txt")
    inside = (place / "runs" / "one" / "config.toml").read_bytes()
    names = ("../outside", "../../outside", str(place / "outside"), "a/../../outside")
    write_archive(place / "runs" / "hostile.zip", {f"{name}/config.toml": inside for name in names})
    return place


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[Address]:
    with serving(place / "runs") as address:
        yield address


def traversals(place: Path) -> list[str]:
    targets = ["../secret.txt", "../outside", str(place / "secret.txt"), "one/../../secret.txt", "link/config.toml"]
    found = []
    for target in targets:
        once = quote(target, safe="")
        dots = target.replace(".", "%2e")
        found += [target, once, quote(once, safe=""), dots, dots.replace("%2e", "%252e")]
        found += [
            target.replace("/", "\\"),
            target.replace("/", "%5c"),
            f"{target}%00.js",
            f"//{target}",
            f"....//{target}",
        ]
        found += [target.replace("../", "..%c0%af"), target.replace("../", "..;/")]
    return found


def test_nothing_from_outside(server: Address, place: Path) -> None:
    asked = 0
    for payload in traversals(place):
        paths = [f"/{payload}", f"/static/{payload}", f"/api/{payload}"]
        for route in ROUTES:
            if route != "/api/events":  # which never ends; below
                paths += [f"{route}?{name}={payload}" for name in PARAMETERS]
        for path in paths:
            path = path.replace("{name}", "main.js").replace(" ", "%20")
            try:
                answer = server.get(path)
            except (ValueError, OSError) as error:  # http.client refuses to send it: then as it is
                data = server.raw(f"GET {path} HTTP/1.1\r\nHost: localhost:{server.port}\r\n\r\n".encode())
                assert SECRET not in data, (path, error)
                continue
            asked += 1
            assert SECRET not in answer.body, path
            assert answer.status in (200, 400, 404, 414), path
    assert asked > 500


def test_nothing_from_outside_in_the_news(server: Address, place: Path) -> None:
    """The first event of the route that never ends."""
    for payload in traversals(place):
        for name in ("since", "run", "study"):
            path = f"/api/events?{name}={payload}".replace(" ", "%20")
            request = f"GET {path} HTTP/1.1\r\nHost: localhost:{server.port}\r\n\r\n".encode()
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
                connection.sendall(request)
                said = connection.recv(1 << 16)
            assert said.startswith(b"HTTP/1.1 400" if name == "since" else (b"HTTP/1.1 200", b"HTTP/1.1 400")), path
            assert SECRET not in said


def test_the_news_have_no_end_but_their_headers_have(server: Address) -> None:
    answer = server.get("/api/events?since=0", "HEAD", timeout=30)
    assert (answer.status, answer.body) == (200, b"")


def test_symlinks_are_not_followed(server: Address) -> None:
    runs = {run["name"]: run for run in server.get("/api/runs").json()["runs"]}
    assert "link" not in runs
    assert runs["one"]["state"] == "done"
    assert runs["two"]["state"] == "unreadable"
    assert SECRET.decode() not in str(runs)


def test_an_archive_leads_nowhere_else(server: Address, place: Path) -> None:
    """Members whose names are paths outside are not shown as runs, under any name."""
    assert {run["name"] for run in server.get("/api/runs").json()["runs"]} == {"one", "two"}
    for name in ("outside", "../outside", "a/../../outside", str(place / "outside"), "hostile.zip/../outside"):
        answer = server.get(f"/api/models?run={quote(name)}")
        assert answer.status == 400
        assert "there is no such run" in answer.json()["error"]


@pytest.mark.parametrize("path", PATHS)
def test_every_route_is_guarded(server: Address, path: str) -> None:
    own = f"localhost:{server.port}"
    for host in (
        "evil.example",
        f"evil.example:{server.port}",
        "localhost.evil.example",
        "",
        f"localhost:{server.port}@evil",
        "127.0.0.1.nip.io",
    ):
        answer = server.get(path, Host=host)
        assert (answer.status, answer.json()) == (403, {"error": "not for this host"}), host
    for origin in ("http://evil.example", "null", f"https://{own}", "http://localhost:1", f"http://{own}.evil.example"):
        assert server.get(path, Origin=origin).status == 403, origin
    for site in ("cross-site", "same-site"):
        assert server.get(path, Sec_Fetch_Site=site).status == 403
        for mode, kind in (("navigate", "iframe"), ("no-cors", "document"), ("cors", "empty"), ("no-cors", "script")):
            assert server.get(path, Sec_Fetch_Site=site, Sec_Fetch_Mode=mode, Sec_Fetch_Dest=kind).status == 403
        followed = server.get(path, Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="document")
        assert followed.status == (200 if path == "/" else 403), "a link opens the page, nothing else"
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"):
        assert server.get(path, method).status == 405, method
    refused = server.get(path, Host="evil.example")
    assert all(refused.headers[name] == value for name, value in HEADERS.items())
    two = server.raw(f"GET {path} HTTP/1.1\r\nHost: {own}\r\nHost: evil.example\r\n\r\n".encode())
    assert b" 403 " in two.split(b"\r\n")[0] or b" 400 " in two.split(b"\r\n")[0]
    if path not in (
        "/api/events",
        "/api/models",
        "/api/weights",
        "/api/scene",
        "/api/explore",
        "/api/difference",
        "/api/claims",
        "/api/story",
        "/api/run",
    ):
        answer = server.get(path, Origin=f"http://{own}", Sec_Fetch_Site="same-origin")
        assert answer.status == 200
        assert all(answer.headers[name] == value for name, value in HEADERS.items())


def test_every_route_is_among_those(place: Path) -> None:
    app = make_app(place / "runs")
    assert isinstance(app.app, Starlette)
    assert [getattr(route, "path", None) for route in app.app.routes] == ROUTES
    assert "unsafe" not in POLICY
    assert "default-src 'none'" in POLICY


def test_whatever_is_answered_carries_the_headers(server: Address) -> None:
    answers = {"/nothing": 404, "/api/curves?metric=x": 400, f"/api/runs?{'x' * 20_000}": 414}
    for path, status in answers.items():
        answer = server.get(path)
        assert answer.status == status, path
        assert all(answer.headers[name] == value for name, value in HEADERS.items()), path
        assert set(answer.json()) == {"error"}


def test_a_server_that_fails_says_so_with_the_headers(place: Path) -> None:
    app = make_app(place / "runs")
    assert isinstance(app.app, Starlette)
    app.app.routes[:] = [Route("/api/runs", lambda request: 1 / 0)]
    said: list[dict] = []

    async def receive() -> dict:
        if said:
            await asyncio.Event().wait()
        return {"type": "http.request"}

    async def send(message: dict) -> None:
        said.append(message)

    scope = {"type": "http", "method": "GET", "path": "/api/runs", "query_string": b"", "http_version": "1.1"}
    with pytest.raises(ZeroDivisionError):  # which the terminal is told
        asyncio.run(app(scope | {"headers": [(b"host", b"localhost:80")]}, receive, send))
    assert said[0]["status"] == 500
    headers = {name.decode(): value.decode() for name, value in said[0]["headers"]}
    assert all(headers[name.lower()] == value for name, value in HEADERS.items())
    assert said[1]["body"] == b'{"error": "the server failed: ZeroDivisionError"}'


def test_only_this_machine(server: Address) -> None:
    """The address at which it listens, according to the system."""
    table = Path("/proc/net/tcp").read_text() if Path("/proc/net/tcp").exists() else ""
    here = [line.split()[1] for line in table.splitlines()[1:] if line.split()[3] == "0A"]
    found = [address for address in here if int(address.split(":")[1], 16) == server.port]
    assert found == [f"0100007F:{server.port:04X}"]


def test_local_names() -> None:
    good = ["localhost", "localhost:80", "LOCALHOST:8642", "127.0.0.1:1", "[::1]:5", "[::1]"]
    bad = [
        "",
        "localhost:",
        "localhost:x",
        "localhost:８０",
        "evil",
        "127.0.0.1.evil:80",
        "::1",
        "localhost:80:80",
        "[::1",
        "user@localhost",
    ]
    assert [host for host in good if not is_local(host)] == []
    assert [host for host in bad if is_local(host)] == []


@pytest.mark.slow
def test_a_run_directory_has_nothing_imported(tmp_path: Path) -> None:
    """A run that names a class is shown, and its model is refused unless the command names it."""
    finish(tmp_path / "custom")
    export_runs([open_run(tmp_path / "custom")], tmp_path / "runs", weights=True)
    (tmp_path / "runs" / "custom" / "manifest.json").unlink()  # or the edit is refused, whatever it says
    config = tmp_path / "runs" / "custom" / "config.toml"
    text = config.read_text()
    head, _, tail = text.partition("[model]")
    rest = tail[tail.index("\n[") :]
    config.write_text(f'{head}[model]\nkind = "evil_module:Evil"\n{rest}')
    (tmp_path / "evil_module.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(tmp_path), before]))
    try:
        with serving(tmp_path / "runs") as server:
            answer = server.get("/api/models?run=custom")
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    assert answer.status == 400
    assert "--model evil_module:Evil" in answer.json()["error"]
    assert not (tmp_path / "ran").exists()
