"""A SLURM cluster, through submitit: a task of a job array for each job.

All nodes share the sweep's directory. What SLURM takes away it gives back: a task that is preempted, or out of time,
saves, is queued again and goes on. The coordinator only watches. If it is killed, the tasks go on without it, and the
next one finds them in the queue.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from recombine.errors import InputError
from recombine.experiment.executor.slurm_queue import FOLDER, Queue, Task
from recombine.experiment.interrupt import StopRequest
from recombine.experiment.job import Event, Job
from recombine.experiment.rundir import STATUS, last_row

SECONDS_BETWEEN_LOOKS = 1.0  # at files
SECONDS_BETWEEN_QUERIES = 10.0  # of the queue, which all users of a cluster share


def run_jobs_on_slurm(
    jobs: Sequence[Job],
    out: Path,
    options: Mapping[str, Any],
    workers: int | None,
    request: StopRequest,
    retries: int,
) -> Iterator[Event]:
    """As `run_jobs` on this machine. `workers`: at most so many at a time; without it, as many as SLURM gives."""
    queue = Queue(out.resolve() / FOLDER, options, workers)
    tasks = queue.find(jobs)
    for task in tasks.values():
        yield Event(task.job, "said", {"text": "is in the queue already"})
    found = {task.job.name for task in tasks.values()}
    tasks |= queue.submit([job for job in jobs if job.name not in found], tasks)
    tried: Counter[str] = Counter()
    again: list[Job] = []
    asked = time.monotonic()
    try:
        while (tasks or again) and not request.requested():
            time.sleep(SECONDS_BETWEEN_LOOKS)
            states = None
            if time.monotonic() - asked >= SECONDS_BETWEEN_QUERIES:
                asked, states = time.monotonic(), queue.states()
                if again and states is not None:
                    with suppress(InputError):  # it did not take them now: at the next query, then
                        tasks |= queue.submit(again, tasks)
                        again = []
            for identity, task in list(tasks.items()):
                yield from _news(task, states is not None and states.get(identity) == "RUNNING")
                if (outcome := queue.outcome(identity, task, states)) is None:
                    continue
                del tasks[identity]
                kind, data = outcome
                tried[task.job.name] += 1
                if kind == "failed" and tried[task.job.name] <= retries and not data.pop("hopeless", False):
                    yield Event(task.job, "said", {"text": f"{data['error']}; once more"})
                    again.append(task.job)
                    continue
                if not task.started:
                    yield Event(task.job, "started", {})
                yield Event(task.job, kind, data)
    finally:  # a signal, an error here, or a reader who left: nothing goes on unseen
        queue.cancel(tasks)
    for job in (*(task.job for task in tasks.values()), *again):
        yield Event(job, "interrupted", {})


def _news(task: Task, runs: bool) -> Iterator[Event]:
    """What a run's directory says of its progress."""
    status: Any = {}
    with suppress(OSError, ValueError):
        status = json.loads((Path(task.job.request["path"]) / STATUS).read_text(encoding="utf-8"))
    running = isinstance(status, dict) and status.get("state") == "running"
    if not task.started and (runs or (running and task.step >= 0)):
        task.started = True
        yield Event(task.job, "started", {})
    step = status.get("step") if isinstance(status, dict) else None
    if isinstance(step, int) and step != task.step:
        task.step = step
        if task.started:
            row = last_row(Path(task.job.request["path"]))
            yield Event(task.job, "progress", {"step": step, "loss": row.get("loss"), "row": row})
