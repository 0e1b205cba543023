"""This machine: one single-threaded worker per core, the next job when one is free."""

import json
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple

from recombine.experiment.interrupt import StopRequest

SECONDS_TO_LEAVE = 30.0


class Job(NamedTuple):
    """What a worker is told to do (see `recombine.experiment.worker`), under a name for people."""

    name: str
    request: dict[str, Any]


class Event(NamedTuple):
    """What became of a job: `started`, `progress`, `said`, `done`, `failed` or `interrupted`."""

    job: Job
    kind: str
    data: dict[str, Any]


class _Worker:
    """A process and the threads that read what it says."""

    def __init__(self, job: Job, events: "queue.Queue[Event]"):
        self.job, self.events = job, events
        self.said: deque[str] = deque(maxlen=20)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "recombine.experiment.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C on a terminal is for the process started there, which passes it on
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.stdin.write(json.dumps(job.request) + "\n")
        self.process.stdin.flush()  # and left open: a worker leaves when it closes
        self.listening = [
            threading.Thread(target=self._listen, args=(self.process.stdout,), daemon=True),
            threading.Thread(target=self._remember, args=(self.process.stderr,), daemon=True),
        ]
        for thread in self.listening:
            thread.start()

    def _listen(self, lines: IO[str]) -> None:
        last = ""
        for line in lines:
            try:
                data = json.loads(line)
                last = data.pop("event")
            except (ValueError, KeyError, AttributeError):  # a library that prints
                self.said.append(line.rstrip())
                continue
            self.events.put(Event(self.job, last, data))
        code = self.process.wait()
        if code in (128 + signal.SIGTERM, 128 + signal.SIGINT):
            self.events.put(Event(self.job, "interrupted", {}))
        elif last not in ("done", "failed"):
            self.listening[1].join(1.0)
            tail = self.said[-1] if self.said else ""
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            self.events.put(Event(self.job, "failed", {"error": f"the worker ended with {how}. {tail}".strip()}))

    def _remember(self, lines: IO[str]) -> None:
        for line in lines:
            self.said.append(line.rstrip())

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()


def run_jobs(jobs: Sequence[Job], workers: int, request: StopRequest) -> Iterator[Event]:
    """Carry the jobs out, in order, `workers` at a time. On a stop request every worker saves and leaves."""
    waiting, events = deque(jobs), queue.Queue[Event]()
    running: dict[str, _Worker] = {}
    stopping = False
    try:
        while waiting or running:
            if request.requested() and not stopping:
                stopping = True
                waiting.clear()
                for worker in running.values():
                    worker.end()
            while waiting and len(running) < workers:
                job = waiting.popleft()
                running[job.name] = _Worker(job, events)
                yield Event(job, "started", {})
            if not running:
                break
            try:
                event = events.get(timeout=0.2)
            except queue.Empty:
                continue
            if event.kind in ("done", "failed", "interrupted"):
                running.pop(event.job.name).process.wait()
            yield event
    finally:  # an error here, or a reader who left: nothing goes on unseen
        for worker in running.values():
            worker.end()
        for worker in running.values():
            try:
                worker.process.wait(SECONDS_TO_LEAVE)
            except subprocess.TimeoutExpired:
                worker.process.kill()
