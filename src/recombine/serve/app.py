"""The routes of the server: the page, its files, and the data that the page requests."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import recombine.page
from recombine import __version__
from recombine.checks import check_choice, check_size
from recombine.errors import InputError
from recombine.figure import theme
from recombine.record.codec import Record, encode
from recombine.serve.budget import BURST, PATIENCE, SHARE, Budget, Gate
from recombine.serve.busy import Busyness
from recombine.serve.explorer.process import ExplorerProcess, Refused, TooManyWaiting
from recombine.serve.explorer.routes import ExplorerRoutes
from recombine.serve.guard import Guard
from recombine.serve.library import Library
from recombine.serve.live_verdicts import Verdicts
from recombine.serve.query import integer
from recombine.serve.run_detail import read_detail
from recombine.serve.watch import Watch, cancel
from recombine.storage.thinned_metrics import MEASURED, MOST_POINTS
from recombine.story.pack import demo_story
from recombine.story.static_page import HERE as STORY
from recombine.story.static_page import SCRIPTS, STYLE
from recombine.study.interval import t_quantile

STATIC = Path(__file__).with_name("static")
TONE = Path(recombine.page.__file__).with_name("tone.js")  # the switch between dark and light, shared with the reports
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
T = TypeVar("T")
MOST_CURVES = 100  # per request; the page never asks for more


class Json(JSONResponse):
    """A record, or plain data, as JSON in ASCII: text from a file can have characters that UTF-8 cannot encode."""

    def render(self, content: Any) -> bytes:
        return encode(content).encode("ascii")


class CurveValues(Record, frozen=True):
    """Some quantities of a run over its steps."""

    steps: tuple[int, ...]
    values: dict[str, tuple[float | None, ...]]


def make_app(
    root: Path,
    custom: str | None = None,
    share: float | None = None,
    chosen: Mapping[str, Path] | None = None,
    custom_task: str | None = None,
) -> Guard:
    """The server of the runs below `root`, or in `chosen` archives there, with their custom model and task, if any.

    `chosen` is the demo. It may use a whole core, unless `share` says otherwise.
    """
    if share is None:
        share = SHARE if chosen is None else 1.0
    server = Server(Library(root, chosen), custom, share, chosen is not None, custom_task)
    app = Starlette(
        routes=server.routes(),
        middleware=[Middleware(Gate, budget=server.budget)],
        exception_handlers={
            Exception: _answer_failure,
            InputError: server.answer_refusal,
            Refused: server.answer_refusal,
            HTTPException: _answer_not_found,
            TooManyWaiting: lambda request, error: Json({"error": "busy; ask again"}, 503),
        },
        lifespan=server.lifespan,
    )
    return Guard(app)  # the outermost layer, so that every answer gets its headers


async def _answer_failure(request: Request, error: Exception) -> Response:
    """Answer with the name of the error. Starlette prints the whole error in the terminal."""
    return Json({"error": f"the server failed: {type(error).__name__}"}, 500)


async def _answer_not_found(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return Json({"error": "not found"}, status)


class Server:
    """The routes, and the state that they share."""

    def __init__(
        self,
        library: Library,
        custom: str | None = None,
        share: float = SHARE,
        is_demo: bool = False,
        custom_task: str | None = None,
    ):
        self.library, self.is_demo = library, is_demo
        self.watch = Watch(self.library)
        self.explorer = ExplorerProcess(share, library.root)
        self.explorer_routes = ExplorerRoutes(library, self.explorer, self._in_thread, is_demo, custom, custom_task)
        self.files = {path.name: path.read_bytes() for path in _static_files()}
        busyness = Busyness(lambda: (os.getpid(), self.explorer.pid))
        self.verdicts = Verdicts(self.library, share, busyness)
        self.seconds_reading = 0.0
        self.budget = Budget(share / 2, BURST / 3, PATIENCE / 4, self._seconds_for_requests, busyness)

    def _seconds_for_requests(self) -> float:
        """Seconds of a core that requests have used: the event loop, and the threads that read files for them.

        The watch limits its own pace, and the verdicts have their own budget.
        """
        return time.thread_time() + self.seconds_reading

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        await self.watch.look_once()
        watching = asyncio.create_task(self.watch.keep_looking())
        try:
            yield
        finally:
            await cancel(watching)
            await self.explorer.end()

    async def answer_refusal(self, request: Request, error: Exception) -> Response:
        """Answer with the error message. Paths are shown relative to the served directory."""
        return Json({"error": str(error).replace(f"{self.library.root}/", "")}, 400)

    def routes(self) -> list[Route]:
        answers: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/": self.page,
            "/static/{name}": self.file,
            "/api/runs": self.runs,
            "/api/events": self.events,
            "/api/curves": self.curves,
            "/api/run": self.run,
            "/api/columns": self.columns,
            "/api/difference": self.difference,
            "/api/claims": self.claims,
            **self.explorer_routes.routes(),
            "/api/story": self.story,
        }
        return [Route(path, answer) for path, answer in answers.items()]

    async def page(self, request: Request) -> Response:
        return Response(self.files["index.html"], media_type=TYPES[".html"])

    async def file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.files:
            raise HTTPException(404)
        return Response(self.files[name], media_type=TYPES[Path(name).suffix])

    async def runs(self, request: Request) -> Response:
        """All data that the page needs when it opens."""
        await self.watch.look_once()
        return Json(
            {
                "version": __version__,
                "directory": "demo" if self.is_demo else self.library.root.name,
                "story": self.is_demo,
                "number": self.watch.number,
                "runs": self.library.table(),
                "sweeps": self.library.sweeps(),
                "colors": {
                    tone: dict(zip(theme.KNOWN, theme.colors(list(theme.KNOWN), tone == "dark"), strict=True))
                    | {"": [pair[tone == "dark"] for pair in theme.CUSTOM]}
                    for tone in ("light", "dark")
                },
                "quantiles": {str(count): t_quantile(count) for count in range(3, 31)} | {"normal": t_quantile(10**9)},
            }
        )

    async def events(self, request: Request) -> Response:
        """Changes in the directory, as server-sent events."""
        since = integer(request.headers.get("last-event-id") or request.query_params.get("since", "0"), "since")
        if request.method == "HEAD":  # the body would never end
            return Response(media_type="text/event-stream")
        return StreamingResponse(self.watch.follow(since), media_type="text/event-stream")

    async def curves(self, request: Request) -> Response:
        """The curves of the quantities that are named. Unknown runs are left out."""
        given = request.query_params
        metrics, most = given.getlist("metric"), integer(given.get("points", str(MOST_POINTS)), "points")
        for metric in metrics:
            check_choice("metric", metric, *MEASURED)
        check_size("points", most, least=2, most=MOST_POINTS)
        names = [name for name in given.getlist("run")[:MOST_CURVES] if name in self.library.runs]
        return Json(await self._in_thread(self._curves, names, tuple(dict.fromkeys(metrics)), most))

    async def _in_thread(self, read: Callable[..., T], *given: object) -> T:
        """Read files in a thread. Its time counts as time for requests."""

        def timed() -> T:
            start = time.thread_time()
            try:
                return read(*given)
            finally:
                self.seconds_reading += time.thread_time() - start

        return await asyncio.to_thread(timed)

    def _curves(self, names: list[str], metrics: tuple[str, ...], most: int) -> dict[str, CurveValues]:
        found = {}
        for name in names:
            with suppress(InputError):  # the run was removed meanwhile
                points = self.library.curve(name, most)
                values = {metric: tuple(getattr(point, metric) for point in points) for metric in metrics}
                found[name] = CurveValues(tuple(point.step for point in points), values)
        return found

    async def run(self, request: Request) -> Response:
        """The configuration, the scores and the log of one run."""
        seen = self.library.find(request.query_params.get("run", ""))
        return Json(await self._in_thread(read_detail, seen))

    async def columns(self, request: Request) -> Response:
        """The fields in which the runs of a study differ."""
        return Json(await self._in_thread(self.library.columns, request.query_params.get("study", "")))

    async def difference(self, request: Request) -> Response:
        """The fields in which two runs differ."""
        one, other = (request.query_params.get(name, "") for name in ("one", "other"))
        return Json({"fields": self.library.difference(one, other)})

    async def claims(self, request: Request) -> Response:
        """The verdicts on a study so far."""
        return Json(await self.verdicts.answer(request.query_params.get("study", "")))

    async def story(self, request: Request) -> Response:
        """The models of the demo's story, for the page to run."""
        if not self.is_demo:
            raise HTTPException(404)
        return Response(await asyncio.to_thread(_story), media_type="application/json")


def _static_files() -> list[Path]:
    """The page's own files, and those that it shares with other pages."""
    own = [path for path in STATIC.iterdir() if path.suffix in TYPES]
    return [*own, TONE, *(STORY / name for name in (*SCRIPTS, STYLE))]


@cache
def _story() -> bytes:
    """Encoded once: many clients share the same bytes."""
    return encode(demo_story()).encode("ascii")
