"""A worker as seen from outside: started, asked, timed out, ended."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self

# Generous: torch.compile alone may take minutes on a busy machine, and a step of it never a tenth of this.
SECONDS_TO_START = 900.0
SECONDS_TO_ANSWER = 900.0


class OutOfTheRace(Exception):
    """A contender cannot go on. `missing`: something it needs is not here; otherwise it failed."""

    def __init__(self, reason: str, missing: bool = False):
        self.reason, self.missing = reason, missing
        super().__init__(reason)


@dataclass(frozen=True)
class Entry:
    """A contender as it is entered: its name, the module and the job for the worker, and the worker's environment."""

    name: str
    module: str
    job: dict[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    processes: int = 1  # side by side, each with this job


class WorkerProcess:
    """`with WorkerProcess(entry) as worker: worker.receive(); worker.send('10'); worker.receive()`"""

    def __init__(self, entry: Entry):
        self.stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed in __exit__)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "recombine.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            env={**os.environ, **entry.environment},
            text=True,
            encoding="utf-8",
        )
        self.lines: SimpleQueue[str] = SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        self.send(json.dumps({"module": entry.module, "job": entry.job}))

    def __enter__(self) -> Self:
        return self

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        with suppress(OSError):  # it has ended, which `receive` will find, and why
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()

    def receive(self, seconds: float) -> dict[str, Any]:
        """Its next answer; OutOfTheRace if there will be none."""
        try:
            line = self.lines.get(timeout=seconds)
        except Empty:
            self.process.kill()
            raise OutOfTheRace(f"no answer within {seconds:g} seconds") from None
        if not line:
            raise OutOfTheRace(self._epitaph())
        answer = json.loads(line)
        if "missing" in answer:
            raise OutOfTheRace(answer["missing"], missing=True)
        if "failed" in answer:
            raise OutOfTheRace(answer["failed"])
        return answer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Killed, not asked to leave: there is nothing to save, and libraries may take their time to tear down.
        self.process.kill()
        self.process.wait()
        self.stderr.close()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(OSError):  # a line that the worker did not live to read
                pipe.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        try:
            for line in self.process.stdout:
                self.lines.put(line)
        except ValueError:  # closed while reading
            pass
        self.lines.put("")

    def _epitaph(self) -> str:
        code = self.process.wait()
        self.stderr.seek(0)
        last = self.stderr.read().decode(errors="replace").strip().splitlines()[-1:]
        how = f"killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return ": ".join([how, *last])[:500]
