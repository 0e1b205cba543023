"""The guard: checks each request before any route sees it; adds the security headers.

Only this machine can reach the server, but any page in a browser on this machine can send requests to it. Such a page
may use a host name of its own that points here, so the guard checks the Host; or it may send a request across origins,
so the guard checks the Origin. No request can change anything.
"""

import asyncio

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

NAMES = ("localhost", "127.0.0.1", "[::1]")
SECONDS_PER_REFUSAL = 0.01
MOST_WAITING_REFUSALS = 100  # more would keep the server's own page out
LONGEST_QUERY = 16_384  # characters: the names of many selected runs
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

    def __init__(self, app: ASGIApp):
        self.app = app
        self.turn = asyncio.Lock()
        self.waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        refused = refusal(scope["method"], scope["path"], Headers(scope=scope), scope.get("query_string", b""))
        if refused is None:
            await self.app(scope, receive, send_guarded)
            return
        if self.waiting < MOST_WAITING_REFUSALS:
            self.waiting += 1
            try:
                async with self.turn:  # one after the other: a foreign page that asks all day gets little of a core
                    await asyncio.sleep(SECONDS_PER_REFUSAL)
            finally:
                self.waiting -= 1
        await JSONResponse({"error": refused[1]}, refused[0])(scope, receive, send_guarded)


def refusal(method: str, path: str, headers: Headers, query: bytes) -> tuple[int, str] | None:
    """The status and the reason for a request that does not come from the server's own page; None for one that does."""
    if method not in ("GET", "HEAD"):
        return 405, "read-only"
    hosts = headers.getlist("host")
    if len(hosts) != 1 or not is_local(hosts[0]):
        return 403, "not for this host"
    if any(origin != f"http://{hosts[0]}" for origin in headers.getlist("origin")):
        return 403, "not from this origin"
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not is_followed_link(path, headers):
        return 403, "not from this site"
    if len(query) > LONGEST_QUERY:
        return 414, "too long"
    return None


def is_followed_link(path: str, headers: Headers) -> bool:
    """Whether somebody follows a link to the page, from a mail or from another page.

    The page itself holds no data and cannot be framed. It sends its own requests for the data.
    """
    how = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
    return path == "/" and how == ("navigate", "document")


def is_local(host: str) -> bool:
    """Whether a Host header names this machine."""
    name, colon, port = host.rpartition(":")
    if not colon or port.endswith("]"):  # no port
        name, port = host, "80"
    return name.lower() in NAMES and port.isascii() and port.isdecimal()
