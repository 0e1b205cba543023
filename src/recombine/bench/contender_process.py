"""Starts, controls and ends the process of a contender."""

import os
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self, TypeVar

from recombine.bench.message import Answer, Failed, Missing, Order, Ready, Turn
from recombine.bench.setting import Setting
from recombine.record.codec import decode, encode
from recombine.run.process import python_command

# Generous: torch.compile alone may take minutes on a busy machine. A turn takes at most a tenth of this.
SECONDS_TO_START = 900.0
SECONDS_TO_ANSWER = 900.0

A = TypeVar("A", Ready, Turn)


class OutOfTheRace(Exception):
    """A contender cannot continue."""

    def __init__(self, why: Missing | Failed):
        self.why = why
        super().__init__(why.reason)


@dataclass(frozen=True)
class Contestant:
    """A contender as it enters the race."""

    name: str
    module: str
    """The module that makes its stepper."""
    setting: Setting
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of its processes, in addition to those of this process."""
    processes: int = 1
    """The number of processes that run side by side, each with the same setting."""


class ContenderProcess:
    """A process that answers: first `await_ready`, then `begin_turn` and `end_turn` for each turn."""

    def __init__(self, entry: Contestant):
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed in __exit__)
        self._process = subprocess.Popen(
            python_command("recombine.bench.contender_main"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, **entry.environment},
            text=True,
            encoding="utf-8",
        )
        self._lines: SimpleQueue[str] = SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        self._send(encode(Order(entry.module, entry.setting)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Killed, not asked to leave: there is nothing to save, and libraries may take their time to tear down.
        self.kill()
        self._process.wait()
        self._stderr.close()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):  # a line that the process did not live to read
                pipe.close()

    def kill(self) -> None:
        self._process.kill()

    def await_ready(self, seconds: float) -> Ready:
        """Wait until the first step is done. Raises `OutOfTheRace` if it never will be."""
        return self._receive(Ready, seconds)

    def begin_turn(self, steps: int) -> None:
        """Ask for this many steps, and return at once."""
        self._send(str(steps))

    def end_turn(self, seconds: float) -> Turn:
        """Wait until the steps are done. Raises `OutOfTheRace` if they never will be."""
        return self._receive(Turn, seconds)

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # the process has ended; `_receive` will find out why
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def _receive(self, kind: type[A], seconds: float) -> A:
        try:
            line = self._lines.get(timeout=seconds)
        except Empty:
            self.kill()
            raise OutOfTheRace(Failed(f"no answer within {seconds:g} seconds")) from None
        if not line:
            raise OutOfTheRace(Failed(self._cause_of_death()))
        answer = decode(line, Answer).content
        if isinstance(answer, Missing | Failed):
            raise OutOfTheRace(answer)
        assert isinstance(answer, kind)
        return answer

    def _read(self) -> None:
        """Queue the lines of the process, and an empty one when there will be no more."""
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                self._lines.put(line)
        except ValueError:  # closed while reading
            pass
        self._lines.put("")

    def _cause_of_death(self) -> str:
        """The exit code or the signal, and the last line of stderr."""
        code = self._process.wait()
        self._stderr.seek(0)
        last = self._stderr.read().decode(errors="replace").strip().splitlines()[-1:]
        how = f"killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return ": ".join([how, *last])[:500]
