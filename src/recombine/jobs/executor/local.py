"""Executes jobs on this machine: one single-threaded worker process per core, or one per GPU."""

import os
import queue
import signal
import subprocess
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import suppress
from itertools import chain, islice

from recombine.jobs.protocol import Job, JobEvent, News, keep_shape, retried
from recombine.record.codec import BadRecord, decode, encode
from recombine.run.process import python_command
from recombine.run.signals import StopSignal

SECONDS_TO_LEAVE = 30.0
AHEAD = 8  # a worker looks among this many jobs for one whose program it has compiled already


class _Worker:
    """A worker process, its current job, and the threads that read its output."""

    def __init__(self, events: "queue.Queue[tuple[_Worker, News]]", gpu: str | None = None):
        self.events, self.gpu = events, gpu
        self.job: Job | None = None
        self.shapes: set[str] = set()  # the shapes of its earlier jobs, whose programs it has compiled
        self.said: deque[str] = deque(maxlen=20)
        self.process = subprocess.Popen(
            python_command("recombine.jobs.worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=None if gpu is None else os.environ | {"CUDA_VISIBLE_DEVICES": gpu},
            start_new_session=True,  # Ctrl-C in a terminal reaches only the coordinator, which passes it on
        )
        assert self.process.stdout is not None
        self.remembering = threading.Thread(target=self._remember, daemon=True)
        self.remembering.start()
        self.listening = threading.Thread(target=self._listen, args=(self.process.stdout,), daemon=True)
        self.listening.start()

    def give(self, job: Job) -> None:
        self.job = job
        if job.shape:
            self.shapes = keep_shape(self.shapes, job.shape)
        assert self.process.stdin is not None
        with suppress(BrokenPipeError, ValueError):  # the worker has ended; the listening thread reports that
            self.process.stdin.write(f"{encode(job)}\n")
            self.process.stdin.flush()  # stdin stays open: closing it ends the worker

    def _listen(self, lines: Iterable[str]) -> None:
        for line in lines:
            try:
                self.events.put((self, decode(line, News)))
            except BadRecord:  # some library printed the line
                self.said.append(line.rstrip())
        code = self.process.wait()
        self.remembering.join(1.0)
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):  # unwritten data is lost, which no longer matters
                pipe.close()  # pyright: ignore[reportOptionalMemberAccess]
        if code in (128 + signal.SIGTERM, 128 + signal.SIGINT, -signal.SIGTERM):
            self.events.put((self, News(kind="interrupted", process_ended=True)))
            return
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        tail = self.said[-1] if self.said else ""
        error = f"the worker ended with {how}. {tail}".strip()
        self.events.put((self, News(kind="failed", error=error, process_ended=True)))

    def _remember(self) -> None:
        """Only this thread closes stderr: another would wait, where a process that the worker forked still has it."""
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.said.append(line.rstrip())

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()


def run_jobs(
    jobs: Sequence[Job], workers: int, stop: StopSignal, retries: int = 1, gpus: Sequence[str] = ()
) -> Iterator[JobEvent]:
    """Execute the jobs, in order, `workers` at a time. When a stop is requested, every worker saves and exits.

    With GPUs, each worker sees one of them: the one that the fewest others have.

    A job that fails, or whose worker is killed, is retried up to `retries` times, unless it would only fail again.
    """
    waiting, events = deque(jobs), queue.Queue[tuple[_Worker, News]]()
    idle: list[_Worker] = []
    busy: list[_Worker] = []
    tried: Counter[str] = Counter()
    passed: Counter[str] = Counter()
    stopping = False
    try:
        while waiting or busy:
            if stop.requested() and not stopping:
                stopping = True
                waiting.clear()
                for worker in busy:
                    worker.end()
            while waiting and len(busy) < workers:
                worker = idle.pop() if idle else _Worker(events, least_used(gpus, [other.gpu for other in busy]))
                worker.give(next_job(waiting, passed, worker.shapes, set().union(*(other.shapes for other in busy))))
                busy.append(worker)
                assert worker.job is not None
                yield JobEvent(worker.job, News(kind="started"))
            try:
                worker, news = events.get(timeout=0.2)
            except queue.Empty:
                continue
            if worker not in busy or worker.job is None:  # an idle worker has ended
                idle = [other for other in idle if other is not worker]
                continue
            job = worker.job
            if news.kind in ("done", "failed", "interrupted"):
                busy.remove(worker)
                if not news.process_ended:
                    idle.append(worker)
                tried[job.name] += 1
                hopeless = news.kind == "done" or stopping or news.hopeless
                if tried[job.name] <= retries and not hopeless:
                    waiting.appendleft(job)  # it resumes from what it saved
                    yield retried(job, news)
                    continue
            yield JobEvent(job, news)
    finally:  # also after an error, or when the generator is closed: leave no worker behind
        for worker in (*busy, *idle):
            worker.end()
        for worker in (*busy, *idle):
            try:
                worker.process.wait(SECONDS_TO_LEAVE)
            except subprocess.TimeoutExpired:
                worker.process.kill()
            worker.listening.join(SECONDS_TO_LEAVE)


def least_used(gpus: Sequence[str], taken: Sequence[str | None]) -> str | None:
    """The GPU that the fewest workers have. None if there are no GPUs."""
    return min(gpus, key=taken.count, default=None)


def next_job(waiting: "deque[Job]", passed: Counter[str], compiled: Set[str], others: Set[str]) -> Job:
    """Choose among the next few jobs: the first whose program this worker has compiled; otherwise the first that no
        other worker has compiled; otherwise the first.

    A job without a shape (computing references) counts as one that no other worker has compiled. No job is skipped more
    than `AHEAD` times.
    """
    near = list(islice(waiting, AHEAD if passed[waiting[0].name] < AHEAD else 1))
    shapes = [job.shape for job in near]
    known = (i for i, shape in enumerate(shapes) if shape in compiled)
    fresh = (i for i, shape in enumerate(shapes) if shape not in others)
    job = near[next(chain(known, fresh), 0)]
    waiting.remove(job)
    passed[near[0].name] += job is not near[0]
    return job
