"""A SLURM cluster, through submitit: a task of a job array for each job.

All nodes share the sweep's directory. What SLURM takes away it gives back: a task that is preempted, or out of time,
saves, is queued again and goes on. The coordinator only watches. If it is killed, the tasks go on without it, and the
next one finds them in the queue.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from recombine.errors import InputError
from recombine.jobs.executor.slurm_queue import FOLDER, Options, Queue, QueuedTask
from recombine.jobs.protocol import Job, JobEvent, News, retried
from recombine.run.signals import StopSignal
from recombine.storage.reader import last_row, read_status
from recombine.storage.source import DirectorySource

SECONDS_BETWEEN_LOOKS = 1.0  # at files
MOST_REFUSALS = 6  # of sbatch, at as many queries, before jobs that it does not take have failed
SECONDS_BETWEEN_QUERIES = 10.0  # of the queue, which all users of a cluster share


def run_jobs_on_slurm(
    jobs: Sequence[Job],
    out: Path,
    options: Options,
    workers: int | None,
    stop: StopSignal,
    retries: int,
) -> Iterator[JobEvent]:
    """As `run_jobs` on this machine. `workers`: at most so many at a time; without it, as many as SLURM gives."""
    queue = Queue(out.resolve() / FOLDER, options, workers)
    tasks = queue.find(jobs)
    for task in tasks.values():
        yield JobEvent(task.job, News(kind="said", text="is in the queue already"))
    found = {task.job.name for task in tasks.values()}
    tasks |= queue.submit([job for job in jobs if job.name not in found], tasks)
    tried: Counter[str] = Counter()
    again: list[Job] = []
    refused = 0  # how often sbatch did, one time after the other
    asked = time.monotonic()
    try:
        while (tasks or again) and not stop.requested():
            time.sleep(SECONDS_BETWEEN_LOOKS)
            states = None
            if time.monotonic() - asked >= SECONDS_BETWEEN_QUERIES:
                asked, states = time.monotonic(), queue.states()
                if again and states is not None:
                    try:
                        tasks |= queue.submit(again, tasks)
                        again, refused = [], 0
                    except InputError as error:  # it does not take them now: at the next query, perhaps
                        refused += 1
                        last = refused == MOST_REFUSALS
                        for job in again:
                            yield JobEvent(job, _refused(error, last))
                        again, refused = ([], 0) if last else (again, refused)
            for identity, task in list(tasks.items()):
                yield from _news(task, states is not None and states.get(identity) == "RUNNING")
                if (news := queue.outcome(identity, task, states)) is None:
                    continue
                del tasks[identity]
                tried[task.job.name] += 1
                if news.kind == "failed" and tried[task.job.name] <= retries and not news.hopeless:
                    yield retried(task.job, news)
                    again.append(task.job)
                    continue
                if not task.started:
                    yield JobEvent(task.job, News(kind="started"))
                yield JobEvent(task.job, news)
    finally:  # a signal, an error here, or a reader who left: nothing goes on unseen
        queue.cancel(tasks)
    for job in (*(task.job for task in tasks.values()), *again):
        yield JobEvent(job, News(kind="interrupted"))


def _refused(error: InputError, last: bool) -> News:
    """What sbatch said of jobs that are tried once more: it may take them later, and after some tries it will not."""
    if last:
        return News(kind="failed", error=error.expected)
    return News(kind="said", text=f"{error.expected}; waiting to submit it again")


def _news(task: QueuedTask, in_queue_as_running: bool) -> Iterator[JobEvent]:
    """What a run's directory says of its progress."""
    source = DirectorySource(task.job.path)
    status = read_status(source)
    running = status is not None and status.state == "running"
    if not task.started and (in_queue_as_running or (running and task.step >= 0)):
        task.started = True
        yield JobEvent(task.job, News(kind="started"))
    if status is not None and status.step != task.step:
        task.step = status.step
        if task.started:
            row = last_row(source)
            loss = None if row is None else row.loss
            yield JobEvent(task.job, News(kind="progress", step=status.step, loss=loss, row=row))
