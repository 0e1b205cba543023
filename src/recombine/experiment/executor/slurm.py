"""A SLURM cluster, through submitit: a task of a job array for each job.

All nodes share the sweep's directory. What SLURM takes away it gives back: a task that is preempted, or out of time,
saves, is queued again and goes on. The coordinator only watches. If it is killed, the tasks go on without it, and the
next one finds them in the queue.
"""

import getpass
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from recombine.errors import InputError
from recombine.experiment.interrupt import Interrupted, StopRequest, run_interruptibly
from recombine.experiment.job import ERRORS, Event, Job, carry_out, failure
from recombine.experiment.machine import prepare
from recombine.experiment.rundir import METRICS, STATUS
from recombine.files import append, make_directories, replace_file

FOLDER, LIST = "slurm", "tasks.jsonl"
SECONDS_BETWEEN_LOOKS = 1.0  # at files
SECONDS_BETWEEN_QUERIES = 10.0  # of the queue, which all users of a cluster share
SECONDS_TO_LEAVE = 60.0
SECONDS_TO_BE_TAKEN = 3600.0
MOST_IN_ARRAY = 1_000  # SLURM's own limit is 1,001 where nobody has changed it
MINUTES = 60  # a run that takes longer is queued again, and goes on
LEAST_MINUTES = 5  # a task is told to save 90 seconds before its end, and SLURM may be a minute early
TIMEOUTS = 10_000

# Options of sbatch that are settled here
SETTLED = {"array", "array-parallelism", "job-name", "output", "error", "open-mode", "signal", "requeue", "no-requeue"}
SETTLED |= {"nodes", "ntasks", "ntasks-per-node", "clusters", "setup", "teardown", "srun-args", "use-srun", "wckey"}
SETTLED |= {"additional-parameters"}


def slurm_options(words: Sequence[str]) -> dict[str, Any]:
    """('partition=cpu', 'time=120') as submitit takes them: options of sbatch, by their long names."""
    options: dict[str, Any] = {"time": MINUTES}
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
class _Task:
    """A job in SLURM's hands."""

    job: Job
    started: bool = False
    step: int = -1
    missing: int = 0
    """How often, one after the other, it was not in the queue."""


def run_jobs_on_slurm(
    jobs: Sequence[Job],
    out: Path,
    options: Mapping[str, Any],
    workers: int | None,
    request: StopRequest,
    retries: int,
) -> Iterator[Event]:
    """As `run_jobs` on this machine. `workers`: at most so many at a time; without it, as many as SLURM gives."""
    cluster = _Cluster(out.resolve() / FOLDER, options, workers)
    tasks = cluster.find(jobs)
    for task in tasks.values():
        yield Event(task.job, "said", {"text": "is in the queue already"})
    found = {task.job.name for task in tasks.values()}
    tasks |= cluster.submit([job for job in jobs if job.name not in found])
    tried: Counter[str] = Counter()
    again: list[Job] = []
    asked = time.monotonic()
    try:
        while (tasks or again) and not request.requested():
            time.sleep(SECONDS_BETWEEN_LOOKS)
            queue = None
            if time.monotonic() - asked >= SECONDS_BETWEEN_QUERIES:
                asked, queue = time.monotonic(), cluster.queue()
                if again and queue is not None:
                    with suppress(InputError):  # it did not take them now: at the next query, then
                        tasks |= cluster.submit(again)
                        again = []
            for identity, task in list(tasks.items()):
                yield from _news(task, queue is not None and queue.get(identity) == "RUNNING")
                if (outcome := cluster.outcome(task, queue, identity)) is None:
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
        cluster.cancel(tasks)
    for job in (*(task.job for task in tasks.values()), *again):
        yield Event(job, "interrupted", {})


def _news(task: _Task, runs: bool) -> Iterator[Event]:
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
            row = _last_row(Path(task.job.request["path"]) / METRICS)
            yield Event(task.job, "progress", {"step": step, "loss": row.get("loss"), "row": row})


def _last_row(metrics: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError, IndexError):
        row = json.loads(metrics.read_text(encoding="utf-8").splitlines()[-1])
        return row if isinstance(row, dict) else {}
    return {}


class _Cluster:
    """SLURM's commands, and the folder in which tasks leave their logs and how they ended."""

    def __init__(self, folder: Path, options: Mapping[str, Any], workers: int | None):
        self.submitit = check_slurm()
        self.folder, self.workers = folder, workers
        make_directories(folder)
        self.executor = self.submitit.SlurmExecutor(folder, max_num_timeout=TIMEOUTS)
        known = {name.replace("_", "-") for name in self.executor._valid_parameters()}
        given = {name.replace("-", "_"): value for name, value in options.items() if name in known}
        more = {name: value for name, value in options.items() if name not in known}
        self.name = f"recombine-{_short_hash(str(folder))}"
        settled = {"job_name": self.name, "nodes": 1, "ntasks_per_node": 1}
        more |= {"requeue": True}
        self.executor.update_parameters(**({"cpus_per_task": 1} | given | settled), additional_parameters=more)

    def submit(self, jobs: Sequence[Job]) -> dict[str, _Task]:
        """The tasks by their numbers in the queue, which are written down before anything else can happen to them."""
        tasks: dict[str, _Task] = {}
        arrays = [jobs[i : i + MOST_IN_ARRAY] for i in range(0, len(jobs), MOST_IN_ARRAY)]
        for array in arrays:
            most = -(-self.workers // len(arrays)) if self.workers else len(array)
            self.executor.update_parameters(array_parallelism=most)
            for job in array:
                self._outcome_file(job).unlink(missing_ok=True)
            work = [Work(job.name, _absolute(job.request), self._outcome_file(job)) for job in array]
            try:
                with self.executor.batch():
                    submitted = [self.executor.submit(each) for each in work]
            except (OSError, RuntimeError, self.submitit.core.utils.UncompletedJobError) as error:
                said = " ".join(str(error).split())
                self.cancel(tasks)
                raise InputError("executor", "slurm", f"SLURM did not take it: {said[-300:]}") from error
            found = {str(one.job_id): _Task(job) for one, job in zip(submitted, array, strict=True)}
            lines = [json.dumps({"id": identity, "name": task.job.name}) for identity, task in found.items()]
            append(self.folder / LIST, "".join(f"{line}\n" for line in lines).encode())
            tasks |= found
        return tasks

    def find(self, jobs: Sequence[Job]) -> dict[str, _Task]:
        """The jobs that an earlier coordinator submitted and that are still in the queue."""
        queue = self.queue()
        if queue is None:
            raise InputError("executor", "slurm", "SLURM does not answer (squeue); try again later")
        names, listed = {job.name: job for job in jobs}, self._listed()
        found = {one: _Task(names[listed[one]]) for one in queue if listed.get(one) in names}
        # Those that are ours and not listed: a coordinator was killed before it could write them down.
        self.cancel({one: None for one in queue if one not in listed})
        return found

    def _listed(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if (self.folder / LIST).is_file():
            for line in (self.folder / LIST).read_text(encoding="utf-8", errors="replace").splitlines():
                with suppress(ValueError, KeyError, TypeError):
                    entry = json.loads(line)
                    found[str(entry["id"])] = str(entry["name"])
        return found

    def queue(self) -> dict[str, str] | None:
        """The state of each of this sweep's tasks that has not ended; None while SLURM does not answer."""
        who = [f"--user={getpass.getuser()}", f"--name={self.name}"]
        command = ["squeue", "--noheader", "--array", *who, "--format=%i %T"]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        except (OSError, subprocess.SubprocessError):
            return None
        return dict(line.split() for line in answer.stdout.splitlines() if len(line.split()) == 2)

    def outcome(self, task: _Task, queue: Mapping[str, str] | None, identity: str) -> tuple[str, dict[str, Any]] | None:
        """How a task ended, or None while it goes on."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            said = json.loads(self._outcome_file(task.job).read_text(encoding="utf-8"))
            return said["kind"], dict(said["data"])
        if queue is None:
            return None
        task.missing = 0 if identity in queue else task.missing + 1
        if task.missing < 2:  # what it wrote may take a moment to be seen from here
            return None
        return "failed", {"error": f"left the queue without a word; its log: {FOLDER}/{identity}_0_log.err"}

    def cancel(self, tasks: Mapping[str, _Task | None]) -> None:
        """Have the tasks save and leave, and wait for it."""
        if not tasks:
            return
        _scancel([*tasks])
        end = time.monotonic() + SECONDS_TO_LEAVE
        while time.monotonic() < end and (queue := self.queue()) is not None and queue.keys() & tasks.keys():
            time.sleep(SECONDS_BETWEEN_LOOKS)

    def _outcome_file(self, job: Job) -> Path:
        return self.folder / f"{_short_hash(job.name)}.json"


def _scancel(words: Sequence[str]) -> None:
    with suppress(OSError, subprocess.SubprocessError):
        subprocess.run(["scancel", *words], capture_output=True, check=False, timeout=60)


def _wait_to_be_taken() -> None:
    """A task that is cancelled can leave. A preempted one has to be there when SLURM takes it, to be queued again."""
    command = ["squeue", "--noheader", f"--jobs={os.environ.get('SLURM_JOB_ID', '')}", "--format=%T"]
    end = time.monotonic() + SECONDS_TO_BE_TAKEN
    while time.monotonic() < end:
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        except (OSError, subprocess.SubprocessError):
            return
        if answer.stdout.strip() != "RUNNING":
            return
        time.sleep(SECONDS_BETWEEN_LOOKS)


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _absolute(request: dict[str, Any]) -> dict[str, Any]:
    runs = [_absolute(run) for run in request.get("runs", ())]
    return request | {"path": str(Path(request["path"]).resolve())} | ({"runs": runs} if runs else {})


class Work:
    """What a task does, on a node. submitit pickles it when it is submitted, and again when it is queued again."""

    def __init__(self, name: str, request: dict[str, Any], outcome: Path):
        self.name, self.request, self.outcome = name, request, outcome
        self.stop: StopRequest | None = None

    def __call__(self) -> None:
        prepare(threads=int(os.environ.get("SLURM_CPUS_PER_TASK", "1")))
        try:
            run_interruptibly(self._work, lambda text: None)
        except (Interrupted, KeyboardInterrupt):
            _wait_to_be_taken()
            return
        except ERRORS as error:
            self._say("failed", failure(error))
        except Exception as error:
            self._say("failed", {"error": f"{type(error).__name__}: {error}", "hopeless": True})
            raise
        else:
            self._say("done", {})

    def _work(self, stop: StopRequest) -> None:
        self.stop = stop
        carry_out(self.request, stop, lambda kind, **data: None)

    def _say(self, kind: str, data: dict[str, Any]) -> None:
        replace_file(self.outcome, json.dumps({"kind": kind, "data": data}).encode())

    def checkpoint(self) -> Any:
        """Called by submitit when the time is nearly up: what is to be queued again, after this one has saved."""
        if self.stop is not None:
            self.stop.ask(signal.SIGUSR2)
        return import_module("submitit").helpers.DelayedSubmission(Work(self.name, self.request, self.outcome))
