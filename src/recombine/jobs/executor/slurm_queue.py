"""Submits tasks to SLURM's queue and queries it, through submitit and SLURM's commands."""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from recombine.errors import InputError
from recombine.files import append, make_directories
from recombine.jobs.executor.slurm_task import Work
from recombine.jobs.protocol import Job, News
from recombine.record.codec import BadRecord, decode
from recombine.run.process import PYTHON

FOLDER, LIST = "slurm", "tasks.jsonl"
SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_TO_LEAVE = 60.0
MOST_IN_ARRAY = 1_000  # SLURM's default limit is 1,001
MINUTES = 60  # a run that takes longer is queued again, and resumes
LEAST_MINUTES = 5  # a task is told to save 90 seconds before its end, and SLURM may be a minute early
TIMEOUTS = 10_000

# Options of sbatch that the executor sets itself
SETTLED = {"array", "array-parallelism", "job-name", "output", "error", "open-mode", "signal", "requeue", "no-requeue"}
SETTLED |= {"nodes", "ntasks", "ntasks-per-node", "clusters", "setup", "teardown", "srun-args", "use-srun", "wckey"}
SETTLED |= {"additional-parameters"}

Options = dict[str, int | bool | str]
"""Options of sbatch, by their long names."""


def slurm_options(words: Sequence[str]) -> Options:
    """Parse ('partition=cpu', 'time=120'), options of sbatch by their long names, for submitit."""
    options: Options = {"time": MINUTES}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not value or not re.fullmatch(r"[a-z][a-z_-]*", name):
            raise InputError("slurm", word, "OPTION=VALUE with an option of sbatch, such as partition=cpu")
        name = name.replace("_", "-")
        if name in SETTLED:
            raise InputError("slurm", word, f"the executor sets {name} itself; leave it out")
        options[name] = int(value) if value.isdecimal() else True if value.lower() == "true" else value
    if type(options["time"]) is not int or options["time"] < LEAST_MINUTES:
        raise InputError("slurm", f"time={options['time']}", f"minutes, an integer of at least {LEAST_MINUTES}")
    return options


def check_slurm() -> Any:
    """Import submitit. Raises an error if it, or SLURM's commands, are missing."""
    if missing := [command for command in ("sbatch", "srun", "squeue", "scancel") if shutil.which(command) is None]:
        raise InputError("executor", "slurm", f"SLURM's commands are not on this machine: no {missing[0]}")
    try:
        return import_module("submitit")
    except ImportError as error:
        raise InputError("executor", "slurm", "submitit is not installed: pip install 'recombine[slurm]'") from error


@dataclass
class QueuedTask:
    """A job that has been submitted to SLURM."""

    job: Job
    started: bool = False
    step: int = -1
    missing: int = 0
    """The number of consecutive queries in which it was not in the queue."""


class Queue:
    """The tasks of this sweep in SLURM's queue, and the folder of their logs and outcomes."""

    def __init__(self, folder: Path, options: Options, workers: int | None):
        self.submitit = check_slurm()
        self.folder, self.workers = folder, workers
        self.executor = self.submitit.SlurmExecutor(folder, max_num_timeout=TIMEOUTS, python=shlex.join(PYTHON))
        known = {name.replace("_", "-") for name in self.executor._valid_parameters()}
        given = {name.replace("-", "_"): value for name, value in options.items() if name in known}
        more = {name: value for name, value in options.items() if name not in known}
        self.name = f"recombine-{_short_hash(str(folder))}"
        self.dependency = options.get("dependency")
        settled = {"job_name": self.name, "nodes": 1, "ntasks_per_node": 1}
        more |= {"requeue": True}
        self.executor.update_parameters(**({"cpus_per_task": 1} | given | settled), additional_parameters=more)

    def check(self) -> str | None:
        """Refuse options that sbatch rejects, without submitting. Returns SLURM's message if no node is free."""
        script = self.executor._make_submission_file_text("true", "")
        command = ["sbatch", "--test-only"]
        try:
            answer = subprocess.run(command, input=script, capture_output=True, text=True, check=False, timeout=60)
        except (OSError, subprocess.SubprocessError) as error:
            raise InputError("executor", "slurm", "SLURM does not answer (sbatch); try again later") from error
        if answer.returncode == 0:
            return None
        said = "; ".join(line.removeprefix("sbatch: ").removeprefix("error: ") for line in answer.stderr.splitlines())
        if "not available" in said:  # SLURM says this of drained nodes, and of requests that exceed every node
            return said
        raise InputError("executor", "slurm", f"SLURM rejects the runs: {said[-300:]}")

    def submit(self, jobs: Sequence[Job], others: Collection[str] = ()) -> dict[str, QueuedTask]:
        """Submit the jobs, and return the tasks by their ids in the queue. The ids are stored at once in `tasks.jsonl`.

        `others` are ids that are in the queue already. SLURM limits how many tasks of one array run at a time, but not
        of several arrays: if they would exceed `workers`, each array starts when the previous ones have ended.
        """
        make_directories(self.folder)
        tasks: dict[str, QueuedTask] = {}
        bounded = self.workers is not None and len(jobs) + len(others) > self.workers
        for array in (jobs[i : i + MOST_IN_ARRAY] for i in range(0, len(jobs), MOST_IN_ARRAY)):
            before = sorted({_array(one) for one in (*others, *tasks)}) if bounded else []
            needed = [str(self.dependency)] if self.dependency else []
            needed += [":".join(["afterany", *before])] if before else []
            self.executor.update_parameters(
                array_parallelism=self.workers or len(array), dependency=",".join(needed) or None
            )
            for job in array:
                self._outcome_file(job).unlink(missing_ok=True)
            work = [Work(job.resolved(), self._outcome_file(job)) for job in array]
            try:
                with self.executor.batch():
                    submitted = [self.executor.submit(each) for each in work]
            except (OSError, RuntimeError, self.submitit.core.utils.UncompletedJobError) as error:
                said = " ".join(str(error).split())
                self.cancel(tasks)
                raise InputError("executor", "slurm", f"SLURM rejected the jobs: {said[-300:]}") from error
            found = {str(one.job_id): QueuedTask(job) for one, job in zip(submitted, array, strict=True)}
            lines = [json.dumps({"id": identity, "name": task.job.name}) for identity, task in found.items()]
            append(self.folder / LIST, "".join(f"{line}\n" for line in lines).encode())
            tasks |= found
        return tasks

    def find(self, jobs: Sequence[Job]) -> dict[str, QueuedTask]:
        """The jobs that an earlier coordinator submitted and that are still in the queue."""
        states = self.states()
        if states is None:
            raise InputError("executor", "slurm", "SLURM does not answer (squeue); try again later")
        names, listed = {job.name: job for job in jobs}, self._listed()
        found = {one: QueuedTask(names[listed[one]]) for one in states if listed.get(one) in names}
        # Tasks of ours that are not listed: a coordinator was killed before it could store their ids.
        self.cancel({one: None for one in states if one not in listed})
        return found

    def _listed(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if (self.folder / LIST).is_file():
            for line in (self.folder / LIST).read_text(encoding="utf-8", errors="replace").splitlines():
                with suppress(ValueError, KeyError, TypeError):
                    entry = json.loads(line)
                    found[str(entry["id"])] = str(entry["name"])
        return found

    def states(self) -> dict[str, str] | None:
        """The state of every task of this sweep that has not ended. None if SLURM does not answer."""
        who = [f"--user={os.getuid()}", f"--name={self.name}"]
        command = ["squeue", "--noheader", "--array", *who, "--format=%i %T"]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        except (OSError, subprocess.SubprocessError):
            return None
        return dict(line.split() for line in answer.stdout.splitlines() if len(line.split()) == 2)

    def outcome(self, identity: str, task: QueuedTask, states: Mapping[str, str] | None) -> News | None:
        """The outcome of a task, or None if it has not ended."""
        with suppress(OSError, BadRecord):
            return decode(self._outcome_file(task.job).read_bytes(), News)
        if states is None:
            return None
        task.missing = 0 if identity in states else task.missing + 1
        if task.missing < 2:  # its outcome file may take a moment to become visible here
            return None
        error = f"left the queue without reporting its outcome; its log: {FOLDER}/{identity}_0_log.err"
        return News(kind="failed", error=error)

    def cancel(self, tasks: Mapping[str, QueuedTask | None]) -> None:
        """Cancel the tasks, which makes them save and exit, and wait until they are gone."""
        if not tasks:
            return
        staying = {_array(one) for one in (self.states() or {}).keys() - tasks.keys()}
        # Whole arrays where possible: cancelling thousands of tasks one by one would take minutes.
        words = sorted({one if _array(one) in staying else _array(one) for one in tasks})
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(["scancel", *words], capture_output=True, check=False, timeout=60)
        end = time.monotonic() + SECONDS_TO_LEAVE
        while time.monotonic() < end and (states := self.states()) is not None and states.keys() & tasks.keys():
            time.sleep(SECONDS_BETWEEN_LOOKS)

    def _outcome_file(self, job: Job) -> Path:
        return self.folder / f"{_short_hash(job.name)}.json"


def _array(identity: str) -> str:
    """The array of a task: '12' for the task '12_3'."""
    return identity.partition("_")[0]


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
