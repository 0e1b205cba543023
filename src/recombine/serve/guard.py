"""The guard: checks every request before the routes see it, and adds the security headers.

Only this machine can reach the server, but any web page in a browser on this machine can send requests to it. Such a
page may use its own host name that points here, so the guard checks the Host. Or it may send a request across origins,
so the guard checks the Origin. No request can change anything.
"""

import asyncio

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

NAMES = ("localhost", "127.0.0.1", "[::1]")
SECONDS_PER_REFUSAL = 0.01
MOST_WAITING_REFUSALS = 100  # more would keep the server's own page out
LONGEST_QUERY = 16_384  # characters: enough for the names of many selected runs
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
    """An ASGI application that wraps another one."""

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
                async with self.turn:  # one at a time: a foreign page that keeps asking uses little processor time
                    await asyncio.sleep(SECONDS_PER_REFUSAL)
            finally:
                self.waiting -= 1
        await JSONResponse({"error": refused[1]}, refused[0])(scope, receive, send_guarded)


def refusal(method: str, path: str, headers: Headers, query: bytes) -> tuple[int, str] | None:
    """The status and the reason if a request does not come from the server's own page, otherwise None."""
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
    """Whether the request comes from a link to the page, in an e-mail or on another page.

    This is safe: the page itself contains no data, requests its data separately, and cannot be framed.
    """
    how = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
    return path == "/" and how == ("navigate", "document")


def is_local(host: str) -> bool:
    """Whether a Host header names this machine."""
    name, colon, port = host.rpartition(":")
    if not colon or port.endswith("]"):  # no port
        name, port = host, "80"
    return name.lower() in NAMES and port.isascii() and port.isdecimal()
