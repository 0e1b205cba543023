"""The explorer's process as the server sees it: started when asked, and again if it has died."""

import asyncio
import json
import sys
from contextlib import suppress
from typing import Any

from recombine.errors import InputError

SECONDS = 600.0  # the first answer loads and compiles, and training goes before
MOST_WAITING = 32


class Refused(Exception):
    """The explorer cannot do what it was asked, and says why."""


class Busy(Exception):
    """Too many wait already."""


class ExplorerProcess:
    """`await explorer.ask({...})`, one question at a time."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.process: asyncio.subprocess.Process | None = None
        self.turn = asyncio.Lock()
        self.waiting = 0

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    async def ask(self, question: dict[str, Any]) -> Any:
        if self.waiting >= MOST_WAITING:
            raise Busy
        self.waiting += 1
        try:
            async with self.turn:
                return await self._ask(question)
        finally:
            self.waiting -= 1

    async def _ask(self, question: dict[str, Any]) -> Any:
        process = await self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(question).encode() + b"\n")
            await process.stdin.drain()
            line = await asyncio.wait_for(process.stdout.readline(), SECONDS)
        except asyncio.CancelledError:  # whoever asked has gone, and the answer would be taken for the next one's
            await self.end()
            raise
        except (OSError, TimeoutError):
            line = b""
        if not line:
            await self.end()
            raise InputError("run", question["paths"], "the models could not be run: their process has ended")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["answer"]

    async def _started(self) -> asyncio.subprocess.Process:
        if self.process is None or self.process.returncode is not None:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "recombine.serve.explore.main",
                str(self.share),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=1 << 26,
                start_new_session=True,
            )
        return self.process

    async def end(self) -> None:
        process, self.process = self.process, None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
