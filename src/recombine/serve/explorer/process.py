"""Starts the explorer's process at the first question, and exchanges messages with it."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from recombine.errors import InputError
from recombine.record.codec import BadRecord, decode, encode
from recombine.run.process import python_command
from recombine.serve.explorer.exchange import Question, Refusal

SECONDS = 600.0  # the first answer takes long: it loads and compiles, and training has priority
MOST_WAITING = 32
LARGEST_ANSWER = 1 << 26

Answer = TypeVar("Answer")


class Refused(Exception):
    """The explorer cannot answer the question; the message says why."""


class TooManyWaiting(Exception):
    """Too many questions are already waiting for an answer."""


class ExplorerProcess:
    """Asks the explorer's process one question at a time, about runs below the directory `root`."""

    def __init__(self, share: float, root: Path) -> None:
        self.share, self.root = share, root
        self.process: asyncio.subprocess.Process | None = None
        self.turn = asyncio.Lock()
        self.waiting = 0

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    async def ask(self, question: Question, kind: type[Answer]) -> Answer:
        """The answer to a question; `kind` is the type of the answer."""
        if self.waiting >= MOST_WAITING:
            raise TooManyWaiting
        self.waiting += 1
        try:
            async with self.turn:
                line = await self._ask(question)
        finally:
            self.waiting -= 1
        try:
            if (error := decode(line, Refusal).error) is not None:
                raise Refused(error)
            return decode(line, kind)
        except BadRecord as error:
            raise Refused(f"the models gave an answer that cannot be read ({error})") from error

    async def _ask(self, question: Question) -> bytes:
        process = await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(f"{encode(question)}\n".encode())
            await process.stdin.drain()
            line = await asyncio.wait_for(process.stdout.readline(), SECONDS)
        except asyncio.CancelledError:  # the client has disconnected; the next one must not get this answer
            await self.end()
            raise
        except (OSError, TimeoutError, ValueError):  # a line that is too long is a ValueError
            line = b""
        if not line:
            await self.end()
            names = [path.name for path in question.run_paths()]
            raise InputError("run", names, "the models could not be run: their process has ended")
        return line

    async def _start(self) -> asyncio.subprocess.Process:
        """The process, started if it is not running."""
        if self.process is None or self.process.returncode is not None:
            self.process = await asyncio.create_subprocess_exec(
                *python_command("recombine.serve.explorer.main", str(self.share), str(self.root)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=LARGEST_ANSWER,
                start_new_session=True,
            )
        return self.process

    async def end(self) -> None:
        """Kill the process, if it is running."""
        process, self.process = self.process, None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
