"""`python -m recombine.jobs.worker`: a process that executes jobs one after the other.

It reads each job as a line of JSON from stdin, and writes news as lines of JSON to stdout. When stdin closes, the
coordinator is gone or has no more jobs: the worker saves and exits, as on SIGTERM. One process executes many jobs, so
that programs compiled for one job serve the next.
"""

import os
import queue
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO

from recombine.jobs.execute import execute_job
from recombine.jobs.protocol import ERRORS, Job, News, failure, keep_shape
from recombine.record.codec import BadRecord, decode, encode
from recombine.run.machine import prepare
from recombine.run.process import stdin_lines, take_stdout
from recombine.run.signals import Interrupted, run_interruptibly

events: IO[str] = sys.stdout


def main() -> int:
    global events
    events = take_stdout()
    stay_nice()
    prepare(threads=1)
    jobs: queue.Queue[Job] = queue.Queue()
    threading.Thread(target=_receive, args=(jobs,), daemon=True).start()
    shapes: set[str] = set()
    while True:
        job = jobs.get()
        shapes = forget(shapes, job.shape)
        try:
            run_interruptibly(lambda stop, job=job: execute_job(job, stop, _tell), lambda text: None)
        except Interrupted as interrupted:
            return 128 + interrupted.signum
        except ERRORS as error:
            _tell(failure(error))
        else:
            _tell(News(kind="done"))


def forget(shapes: set[str], shape: str | None) -> set[str]:
    """Clear the compiled programs when there are too many, because each takes memory. Returns the shapes still kept."""
    if shape is None:
        return shapes
    kept = keep_shape(shapes, shape)
    if not shapes <= kept:
        import jax

        jax.clear_caches()
    return kept


def stay_nice() -> None:
    """Apply the process's niceness to its scheduling group as well. On Linux a session leader gets its own group, and
    between groups only the group's niceness counts."""
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    if niceness > 0:
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(niceness), encoding="ascii")


def _receive(jobs: "queue.Queue[Job]") -> None:
    """Read jobs from stdin. When stdin ends, for whatever reason, the worker exits."""
    try:
        for line in stdin_lines():
            try:
                jobs.put(decode(line, Job))
            except BadRecord as error:
                _tell(News(kind="failed", error=f"not a job: {error}", hopeless=True))
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def _tell(news: News) -> None:
    events.write(f"{encode(news)}\n")


if __name__ == "__main__":
    sys.exit(main())
