"""What every request has to pass before any route sees it, and what every answer carries.

Only this machine can reach the server, but any page in a browser on it can send requests: with a name of its own that
it has pointed here (so the Host is checked), or across origins (so the Origin is). Nothing can be changed through it.
"""

import asyncio
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

NAMES = ("localhost", "127.0.0.1", "[::1]")
SECONDS_PER_REFUSAL = 0.01
LONGEST = 16_384  # characters of a query: a selection of many runs
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """An ASGI application around another."""

    def __init__(self, app: Any):
        self.app = app
        self.turn = asyncio.Lock()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def send_guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        refused = refusal(scope["method"], scope["path"], Headers(scope=scope), scope.get("query_string", b""))
        if refused is None:
            await self.app(scope, receive, send_guarded)
            return
        async with self.turn:  # one after the other: a foreign page that asks all day does not get much of a core
            await asyncio.sleep(SECONDS_PER_REFUSAL)
        await JSONResponse({"error": refused[1]}, refused[0])(scope, receive, send_guarded)


def refusal(method: str, path: str, headers: Headers, query: bytes) -> tuple[int, str] | None:
    """The status and the reason, where a request is not from a page of ours."""
    if method not in ("GET", "HEAD"):
        return 405, "read-only"
    hosts = headers.getlist("host")
    if len(hosts) != 1 or not is_local(hosts[0]):
        return 403, "not for this host"
    if any(origin != f"http://{hosts[0]}" for origin in headers.getlist("origin")):
        return 403, "not from this origin"
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not is_followed_link(path, headers):
        return 403, "not from this site"
    if len(query) > LONGEST:
        return 414, "too long"
    return None


def is_followed_link(path: str, headers: Headers) -> bool:
    """From a mail, a chat, another page: somebody opens the page itself, which is the same for all and cannot be
    framed. What it then asks for, it asks itself."""
    how = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
    return path == "/" and how == ("navigate", "document")


def is_local(host: str) -> bool:
    name, colon, port = host.rpartition(":")
    if not colon or port.endswith("]"):  # no port
        name, port = host, "80"
    return name.lower() in NAMES and port.isascii() and port.isdecimal()
