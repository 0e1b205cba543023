"""The routes: a page, its files, and what it asks for. All of them read."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import recombine.page
from recombine import __version__
from recombine.checks import check_choice, check_size
from recombine.config.schema import SHIPPED, CustomModelConfig
from recombine.errors import InputError
from recombine.figure import theme
from recombine.record.codec import plain
from recombine.run.curve import MEASURED, MOST_POINTS
from recombine.serve.budget import BURST, PATIENCE, SHARE, Allowance, Gate
from recombine.serve.busy import Load
from recombine.serve.explore.process import Busy, ExplorerProcess, Refused
from recombine.serve.guard import Guard
from recombine.serve.library import Library
from recombine.serve.live import Watch, cancelled
from recombine.serve.run_summary import SeenRun
from recombine.serve.verdicts import Verdicts
from recombine.study.statistics import t_quantile

STATIC = Path(__file__).with_name("static")
TONE = Path(recombine.page.__file__).with_name("tone.js")  # dark or light, as in the reports
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
MOST_CURVES = 100  # in one answer: the page asks for no more at once


class Json(JSONResponse):
    """In ASCII, so that no text of a file, whatever its bytes, makes an answer impossible."""

    def render(self, content: Any) -> bytes:
        return json.dumps(plain(content), allow_nan=False, separators=(",", ":")).encode("ascii")


def make_app(root: Path, custom: str | None = None, share: float = SHARE) -> Guard:
    """The server of the runs under `root`. `custom` is a class that runs may be of."""
    server = Server(root, custom, share)
    app = Starlette(
        routes=server.routes(),
        middleware=[Middleware(Gate, allowance=server.allowance)],
        exception_handlers={
            Exception: _failed,
            InputError: server.refused,
            Refused: server.refused,
            HTTPException: _not_there,
            Busy: lambda request, error: Json({"error": "busy; ask again"}, 503),
        },
        lifespan=server.lifespan,
    )
    return Guard(app)  # outside all else: whatever is answered carries its headers


async def _failed(request: Request, error: Exception) -> Response:
    """Starlette tells the terminal all of it."""
    return Json({"error": f"the server failed: {type(error).__name__}"}, 500)


async def _not_there(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return Json({"error": "there is nothing here"}, status)


class Server:
    """What the routes share."""

    def __init__(self, root: Path, custom: str | None = None, share: float = SHARE):
        self.library = Library(root)
        self.watch = Watch(self.library)
        self.explorer = ExplorerProcess(share)
        self.custom = custom
        self.files = {path.name: path.read_bytes() for path in (*STATIC.iterdir(), TONE) if path.suffix in TYPES}
        load = Load(lambda: (os.getpid(), self.explorer.pid))
        self.verdicts = Verdicts(self.library, share, load)
        self.reading = 0.0
        self.allowance = Allowance(share / 2, BURST / 3, PATIENCE / 4, self._for_requests, load)

    def _for_requests(self) -> float:
        """Seconds of a core: of the loop, which asks, and of the threads that read curves. The watch has a
        pace of its own, and the verdicts an allowance."""
        return time.thread_time() + self.reading

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        await self.watch.look_once()
        watching = asyncio.create_task(self.watch.go_on())
        # It takes seconds, and the first page is about to need it.
        self.drawing = asyncio.create_task(asyncio.to_thread(_vega))
        try:
            yield
        finally:
            await cancelled(watching)
            await cancelled(self.drawing)
            await self.explorer.end()

    async def refused(self, request: Request, error: Exception) -> Response:
        """In words. Of a path, the page's reader knows the part below the directory."""
        return Json({"error": str(error).replace(f"{self.library.root}/", "")}, 400)

    def routes(self) -> list[Route]:
        answers: dict[str, Callable[..., Any]] = {
            "/": self.page,
            "/static/{name}": self.file,
            "/api/runs": self.runs,
            "/api/events": self.events,
            "/api/curves": self.curves,
            "/api/difference": self.difference,
            "/api/claims": self.claims,
            "/api/models": self.models,
            "/api/explore": self.explore,
        }
        return [Route(path, answer) for path, answer in answers.items()]

    async def page(self, request: Request) -> Response:
        return Response(self.files["index.html"], media_type=TYPES[".html"])

    async def file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name == "vega.js":
            self.files[name] = await self.drawing
        if name not in self.files:
            raise HTTPException(404)
        return Response(self.files[name], media_type=TYPES[Path(name).suffix])

    async def runs(self, request: Request) -> Response:
        await self.watch.look_once()
        return Json(
            {
                "version": __version__,
                "directory": self.library.root.name,
                "number": self.watch.number,
                "runs": self.library.table(),
                "sweeps": self.library.sweeps(),
                "themes": {tone: theme.config([], tone == "dark", size=12) for tone in ("light", "dark")},
                "colors": {
                    tone: dict(zip(theme.KNOWN, theme.colors(list(theme.KNOWN), tone == "dark"), strict=True))
                    | {"": [pair[tone == "dark"] for pair in theme.CUSTOM]}
                    for tone in ("light", "dark")
                },
                "quantiles": {str(count): t_quantile(count) for count in range(3, 31)} | {"normal": t_quantile(10**9)},
            }
        )

    async def events(self, request: Request) -> Response:
        since = _integer(request.headers.get("last-event-id") or request.query_params.get("since", "0"), "since")
        if request.method == "HEAD":  # there is no end to wait for
            return Response(media_type="text/event-stream")
        return StreamingResponse(self.watch.follow(since), media_type="text/event-stream")

    async def curves(self, request: Request) -> Response:
        """Of one quantity, for the runs that are there."""
        given = request.query_params
        metric, most = given.get("metric", "ood"), _integer(given.get("points", str(MOST_POINTS)), "points")
        check_choice("metric", metric, *MEASURED)
        check_size("points", most, least=2, most=MOST_POINTS)
        names = [name for name in given.getlist("run")[:MOST_CURVES] if name in self.library.runs]
        return Json(await asyncio.to_thread(self._curves, names, metric, most))

    def _curves(self, names: list[str], metric: str, most: int) -> dict[str, dict[str, list[Any]]]:
        found, start = {}, time.thread_time()
        for name in names:
            with suppress(InputError):  # gone since
                points = self.library.curve(name, most)
                values = [getattr(point, metric) for point in points]
                found[name] = {"steps": [point.step for point in points], "values": values}
        self.reading += time.thread_time() - start
        return found

    async def difference(self, request: Request) -> Response:
        one, other = (request.query_params.get(name, "") for name in ("one", "other"))
        return Json({"fields": self.library.difference(one, other)})

    async def claims(self, request: Request) -> Response:
        return Json(await self.verdicts.of(request.query_params.get("study", "")))

    async def models(self, request: Request) -> Response:
        """What the explorer can be asked about these runs."""
        return Json({"models": await self._ask(request, "describe")})

    async def explore(self, request: Request) -> Response:
        """One task, and what one or two models make of it."""
        given = request.query_params
        task = {
            "weights": _numbers(given.get("weights", ""), "weights"),
            "length": _integer(given.get("length", ""), "length"),
            "draw": _integer(given.get("draw", "0"), "draw"),
            "fresh": _integer(given["fresh"], "fresh") if "fresh" in given else None,
            "teacher_of": _integer(given.get("teacher_of", "0"), "teacher_of"),
            "direction": _integer(given.get("direction", "0"), "direction"),
        }
        latents = [_latent(given.get(name), name) for name in ("latent0", "latent1")]
        return Json(await self._ask(request, "explore", task=task, latents=latents))

    async def _ask(self, request: Request, what: str, **more: Any) -> Any:
        names = request.query_params.getlist("run")
        if not 1 <= len(names) <= 2:
            raise InputError("run", names, "name one or two runs")
        runs = [self.library.find(name) for name in names]
        custom = [kind for run in runs if (kind := self._importable(run))]
        return await self.explorer.ask(
            {"ask": what, "paths": [str(run.path) for run in runs], "custom": custom, **more}
        )

    def _importable(self, run: SeenRun) -> str | None:
        """The class that a run's model is of, if it is not ours. A run directory alone never has anything imported."""
        model = None if run.config is None else run.config.model
        if not isinstance(model, CustomModelConfig):
            return None
        kind = model.kind
        if kind not in (*SHIPPED, self.custom):
            raise InputError("run", run.name, f"its model is {kind}: serve with --model {kind} to have it imported")
        return kind


def _vega() -> bytes:
    from recombine.page.document import vega

    return vega().encode()


def _integer(text: str, name: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 12):
        raise InputError(name, text, "a whole number")
    return int(text)


def _numbers(text: str, name: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(name, text, "numbers, with commas between them") from error


def _latent(text: str | None, name: str) -> list[float] | str | None:
    """Numbers, or the word for what the task's own latent maps to."""
    return text if text in (None, "true") else _numbers(text, name)
