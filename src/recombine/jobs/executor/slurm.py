"""Executes jobs on a SLURM cluster through submitit, each as a task of a job array.

All nodes share the sweep's directory. A task that is preempted or runs out of time saves, is queued again and resumes.
The coordinator only watches: if it is killed, the tasks continue, and the next coordinator finds them in the queue.
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

SECONDS_BETWEEN_LOOKS = 1.0  # looks at the runs' files
MOST_REFUSALS = 6  # jobs that sbatch rejects in this many consecutive queries have failed
SECONDS_BETWEEN_QUERIES = 10.0  # queries of the queue, which all users of the cluster share


def run_jobs_on_slurm(
    jobs: Sequence[Job],
    out: Path,
    options: Options,
    workers: int | None,
    stop: StopSignal,
    retries: int,
) -> Iterator[JobEvent]:
    """Like `run_jobs` on this machine, with at most `workers` jobs at a time; without `workers`, SLURM decides."""
    queue = Queue(out.resolve() / FOLDER, options, workers)
    tasks = queue.find(jobs)
    for task in tasks.values():
        yield JobEvent(task.job, News(kind="said", text="already in the queue"))
    found = {task.job.name for task in tasks.values()}
    tasks |= queue.submit([job for job in jobs if job.name not in found], tasks)
    tried: Counter[str] = Counter()
    again: list[Job] = []
    refused = 0  # consecutive rejections by sbatch
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
                    except InputError as error:  # sbatch may accept them at the next query
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
    finally:  # also after an error, or when the generator is closed: leave no task behind
        queue.cancel(tasks)
    for job in (*(task.job for task in tasks.values()), *again):
        yield JobEvent(job, News(kind="interrupted"))


def _refused(error: InputError, last: bool) -> News:
    """The news of jobs that sbatch rejected: they are submitted again later, or after the last attempt have failed."""
    if last:
        return News(kind="failed", error=error.expected)
    return News(kind="said", text=f"{error.expected}; waiting to submit it again")


def _news(task: QueuedTask, in_queue_as_running: bool) -> Iterator[JobEvent]:
    """The progress of a task, read from the directory of its run."""
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
