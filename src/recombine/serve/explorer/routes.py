"""The routes of the explorer: descriptions, what the page needs to run models itself, and answers where it cannot."""

import os
from collections.abc import Awaitable, Callable, Mapping
from functools import cache, lru_cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from recombine.config.model import SHIPPED
from recombine.config.schema import custom_model, custom_task
from recombine.errors import InputError
from recombine.record.codec import encode
from recombine.serve.explorer.exchange import Descriptions, Exploration, Question
from recombine.serve.explorer.in_page import PageModel, PageScene, stored_description, stored_model, stored_scene
from recombine.serve.explorer.process import ExplorerProcess
from recombine.serve.library import Library
from recombine.serve.query import asked_classes, asked_inputs, asked_latent, asked_task

Read = Callable[..., Awaitable[bytes | None]]
JSON = "application/json"


class ExplorerRoutes:
    """What the demo has stored is answered from there, everything else by the explorer's process.

    `read` calls a function that reads files, in a thread.
    """

    def __init__(
        self,
        library: Library,
        process: ExplorerProcess,
        read: Read,
        is_demo: bool,
        custom: str | None = None,
        custom_task: str | None = None,
    ) -> None:
        self.library, self.process, self.read = library, process, read
        self.is_demo, self.custom, self.custom_task = is_demo, custom, custom_task

    def routes(self) -> Mapping[str, Callable[[Request], Awaitable[Response]]]:
        return {
            "/api/models": self.models,
            "/api/weights": self.weights,
            "/api/scene": self.scene,
            "/api/explore": self.explore,
        }

    async def models(self, request: Request) -> Response:
        """The models of one or two runs, described for the explorer's form."""
        question = self._question(request)
        stored = await self._stored(_stored_descriptions, tuple(question.run_paths()))
        return _answer(stored or _encoded(await self.process.ask(question, Descriptions)))

    async def weights(self, request: Request) -> Response:
        """A model that the page runs itself."""
        question = self._question(request, most=1, weights=True)
        stored = await self._stored(_stored_model, *question.run_paths())
        return _answer(stored or _encoded(await self.process.ask(question, PageModel)))

    async def scene(self, request: Request) -> Response:
        """The teacher and the inputs of a draw, for the page to compose tasks of them."""
        inputs = asked_inputs(request.query_params)
        question = self._question(request, most=1, inputs=inputs)
        stored = await self._stored(_stored_scene, *question.run_paths(), inputs.draw, inputs.fresh)
        return _answer(stored or _encoded(await self.process.ask(question, PageScene)))

    async def explore(self, request: Request) -> Response:
        """The predictions of one or two models for a task that a visitor composed."""
        given = request.query_params
        task, latents = asked_task(given), tuple(asked_latent(given, name) for name in ("latent0", "latent1"))
        return _answer(
            _encoded(await self.process.ask(self._question(request, task=task, latents=latents), Exploration))
        )

    async def _stored(self, find: Callable[..., bytes | None], *given: object) -> bytes | None:
        return await self.read(find, *given) if self.is_demo else None

    def _question(self, request: Request, most: int = 2, **more: object) -> Question:
        """A question about the runs that a request names."""
        names = request.query_params.getlist("run")
        if not 1 <= len(names) <= most:
            raise InputError("run", names, "name one run" if most == 1 else "name one or two runs")
        runs = [self.library.find(name) for name in names]
        return Question(
            paths=tuple(os.fsencode(run.path) for run in runs),
            custom=asked_classes("model", runs, custom_model, (*SHIPPED, self.custom)),
            custom_tasks=asked_classes("task", runs, custom_task, (self.custom_task,)),
            **more,  # pyright: ignore[reportArgumentType]
        )


def _answer(data: bytes) -> Response:
    return Response(data, media_type=JSON)


def _encoded(record: object) -> bytes:
    return encode(record).encode("ascii")


# Encoded once: many clients share the same bytes.
@cache
def _stored_descriptions(paths: tuple[Path, ...]) -> bytes | None:
    found = [described for path in paths if (described := stored_description(path))]
    return _encoded(Descriptions(tuple(found))) if len(found) == len(paths) else None


@cache
def _stored_model(path: Path) -> bytes | None:
    found = stored_model(path)
    return None if found is None else _encoded(found)


@lru_cache(maxsize=64)  # a visitor chooses the draw, and most are not stored
def _stored_scene(path: Path, draw: int, fresh: int | None) -> bytes | None:
    found = stored_scene(path, draw, fresh)
    return None if found is None else _encoded(found)
