"""SLURM's queue, through submitit and SLURM's commands: what is put in, and what is there."""

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
from recombine.run.python_process import PYTHON

FOLDER, LIST = "slurm", "tasks.jsonl"
SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_TO_LEAVE = 60.0
MOST_IN_ARRAY = 1_000  # SLURM's own limit is 1,001 where nobody has changed it
MINUTES = 60  # a run that takes longer is queued again, and goes on
LEAST_MINUTES = 5  # a task is told to save 90 seconds before its end, and SLURM may be a minute early
TIMEOUTS = 10_000

# Options of sbatch that are settled here
SETTLED = {"array", "array-parallelism", "job-name", "output", "error", "open-mode", "signal", "requeue", "no-requeue"}
SETTLED |= {"nodes", "ntasks", "ntasks-per-node", "clusters", "setup", "teardown", "srun-args", "use-srun", "wckey"}
SETTLED |= {"additional-parameters"}

Options = dict[str, int | bool | str]
"""Options of sbatch, by their long names."""


def slurm_options(words: Sequence[str]) -> Options:
    """('partition=cpu', 'time=120') as submitit takes them: options of sbatch, by their long names."""
    options: Options = {"time": MINUTES}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not value or not re.fullmatch(r"[a-z][a-z_-]*", name):
            raise InputError("slurm", word, "OPTION=VALUE with an option of sbatch, such as partition=cpu")
        name = name.replace("_", "-")
        if name in SETTLED:
            raise InputError("slurm", word, f"{name} is settled by the executor; leave it out")
        options[name] = int(value) if value.isdecimal() else True if value.lower() == "true" else value
    if type(options["time"]) is not int or options["time"] < LEAST_MINUTES:
        raise InputError("slurm", f"time={options['time']}", f"minutes, an integer of at least {LEAST_MINUTES}")
    return options


def check_slurm() -> Any:
    """submitit, if it and SLURM's commands are there."""
    if missing := [command for command in ("sbatch", "srun", "squeue", "scancel") if shutil.which(command) is None]:
        raise InputError("executor", "slurm", f"SLURM's commands are not on this machine: no {missing[0]}")
    try:
        return import_module("submitit")
    except ImportError as error:
        raise InputError("executor", "slurm", "submitit is not installed: pip install 'recombine[slurm]'") from error


@dataclass
class Task:
    """A job in SLURM's hands."""

    job: Job
    started: bool = False
    step: int = -1
    missing: int = 0
    """How often, one after the other, it was not in the queue."""


class Queue:
    """This sweep's tasks in SLURM's queue, and the folder in which they leave their logs and how they ended."""

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
        """Refuse what sbatch would, and write nothing; or what SLURM has to say where it has no room now."""
        script = self.executor._make_submission_file_text("true", "")
        command = ["sbatch", "--test-only"]
        try:
            answer = subprocess.run(command, input=script, capture_output=True, text=True, check=False, timeout=60)
        except (OSError, subprocess.SubprocessError) as error:
            raise InputError("executor", "slurm", "SLURM does not answer (sbatch); try again later") from error
        if answer.returncode == 0:
            return None
        said = "; ".join(line.removeprefix("sbatch: ").removeprefix("error: ") for line in answer.stderr.splitlines())
        if "not available" in said:  # nodes that are drained, or more than any node has: it says the same of both
            return said
        raise InputError("executor", "slurm", f"SLURM would not take the runs: {said[-300:]}")

    def submit(self, jobs: Sequence[Job], others: Collection[str] = ()) -> dict[str, Task]:
        """The tasks by their numbers in the queue, which are written down before anything else can happen to them.

        `others` are in the queue already. SLURM bounds how many tasks of one array run at a time; if there would be too
        many of several arrays, each begins when those before it have ended.
        """
        make_directories(self.folder)
        tasks: dict[str, Task] = {}
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
                raise InputError("executor", "slurm", f"SLURM did not take it: {said[-300:]}") from error
            found = {str(one.job_id): Task(job) for one, job in zip(submitted, array, strict=True)}
            lines = [json.dumps({"id": identity, "name": task.job.name}) for identity, task in found.items()]
            append(self.folder / LIST, "".join(f"{line}\n" for line in lines).encode())
            tasks |= found
        return tasks

    def find(self, jobs: Sequence[Job]) -> dict[str, Task]:
        """The jobs that an earlier coordinator submitted and that are still in the queue."""
        states = self.states()
        if states is None:
            raise InputError("executor", "slurm", "SLURM does not answer (squeue); try again later")
        names, listed = {job.name: job for job in jobs}, self._listed()
        found = {one: Task(names[listed[one]]) for one in states if listed.get(one) in names}
        # Those that are ours and not listed: a coordinator was killed before it could write them down.
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
        """The state of each of this sweep's tasks that has not ended; None while SLURM does not answer."""
        who = [f"--user={os.getuid()}", f"--name={self.name}"]
        command = ["squeue", "--noheader", "--array", *who, "--format=%i %T"]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        except (OSError, subprocess.SubprocessError):
            return None
        return dict(line.split() for line in answer.stdout.splitlines() if len(line.split()) == 2)

    def outcome(self, identity: str, task: Task, states: Mapping[str, str] | None) -> News | None:
        """How a task ended, or None while it is not over."""
        with suppress(OSError, BadRecord):
            return decode(self._outcome_file(task.job).read_bytes(), News)
        if states is None:
            return None
        task.missing = 0 if identity in states else task.missing + 1
        if task.missing < 2:  # what it wrote may take a moment to be seen from here
            return None
        error = f"left the queue without a word; its log: {FOLDER}/{identity}_0_log.err"
        return News(kind="failed", error=error)

    def cancel(self, tasks: Mapping[str, Task | None]) -> None:
        """Have the tasks save and leave, and wait for it."""
        if not tasks:
            return
        staying = {_array(one) for one in (self.states() or {}).keys() - tasks.keys()}
        words = sorted(
            {one if _array(one) in staying else _array(one) for one in tasks}
        )  # thousands would take minutes
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(["scancel", *words], capture_output=True, check=False, timeout=60)
        end = time.monotonic() + SECONDS_TO_LEAVE
        while time.monotonic() < end and (states := self.states()) is not None and states.keys() & tasks.keys():
            time.sleep(SECONDS_BETWEEN_LOOKS)

    def _outcome_file(self, job: Job) -> Path:
        return self.folder / f"{_short_hash(job.name)}.json"


def _array(identity: str) -> str:
    """'12_3' is a task of the array '12'."""
    return identity.partition("_")[0]


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
