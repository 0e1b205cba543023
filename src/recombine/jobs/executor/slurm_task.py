"""The task that SLURM runs on a node: it executes a job, and is queued again if it is cut short."""

import os
import signal
import subprocess
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from recombine.files import replace_file
from recombine.jobs.execute import execute_job
from recombine.jobs.protocol import ERRORS, Job, News, failure
from recombine.record.codec import encode
from recombine.run.machine import prepare
from recombine.run.signals import Interrupted, StopSignal, run_interruptibly

SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_TO_WAIT = 3600.0


class Work:
    """The callable that a task executes on a node. submitit pickles it on submission, and again on requeueing."""

    def __init__(self, job: Job, outcome: Path):
        self.job, self.outcome = job, outcome
        self.stop: StopSignal | None = None

    def __call__(self) -> None:
        prepare(threads=int(os.environ.get("SLURM_CPUS_PER_TASK", "1")))
        try:
            run_interruptibly(self._work, lambda text: None, before_exit=_wait_for_slurm)
        except (Interrupted, KeyboardInterrupt):
            _wait_for_slurm()
            return
        except ERRORS as error:
            self._say(failure(error))
        except Exception as error:
            self._say(News(kind="failed", error=f"{type(error).__name__}: {error}", hopeless=True))
            raise
        else:
            self._say(News(kind="done"))

    def _work(self, stop: StopSignal) -> None:
        self.stop = stop
        execute_job(self.job, stop, lambda news: None)

    def _say(self, news: News) -> None:
        replace_file(self.outcome, encode(news).encode())

    def checkpoint(self) -> Any:
        """Called by submitit when the time is nearly up: let the job save, and return the task to be queued again.

        A preempted task gets SIGTERM instead, and SLURM itself queues it again (`requeue` in `slurm_queue`).
        """
        if self.stop is not None:
            self.stop.ask(signal.SIGUSR2)
        return import_module("submitit").helpers.DelayedSubmission(Work(self.job, self.outcome))


def _wait_for_slurm() -> None:
    """Wait until SLURM ends an interrupted task. A cancelled task can exit at once, but a preempted one must still be
    running when SLURM takes its node, or it is not queued again."""
    command = ["squeue", "--noheader", f"--jobs={os.environ.get('SLURM_JOB_ID', '')}", "--format=%T"]
    end = time.monotonic() + SECONDS_TO_WAIT
    while time.monotonic() < end:
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        except (OSError, subprocess.SubprocessError):
            return
        if answer.stdout.strip() != "RUNNING":
            return
        time.sleep(SECONDS_BETWEEN_LOOKS)
