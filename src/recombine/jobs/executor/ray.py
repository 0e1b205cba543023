"""Executes jobs as tasks on a Ray cluster, which is started on this machine or exists already.

If a node does not share the sweep's directory, it executes a run in its own cache. The run's files are sent back when
the run is done or interrupted.
"""

import hashlib
import logging
import os
import secrets
import socket
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import chdir
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from recombine.errors import Failed, InputError
from recombine.files import make_directories, remove_directory, replace_file
from recombine.jobs.execute import execute_job
from recombine.jobs.protocol import ERRORS, Job, JobEvent, News, failure, retried
from recombine.run.machine import prepare
from recombine.run.process import cache_directory
from recombine.run.signals import Interrupted, StopSignal, run_interruptibly
from recombine.storage.source import CHECKPOINTS, CONFIG

SECONDS_BETWEEN_LOOKS = 0.2
SECONDS_TO_LEAVE = 60.0
MARK = ".shared-"
NEEDS_FILES = "the run's files are not on this node"
READ_ATTEMPTS = 20  # attempts to read a directory whose files are changing


def run_jobs_on_ray(
    jobs: Sequence[Job],
    out: Path,
    address: str | None,
    workers: int | None,
    stop: StopSignal,
    retries: int,
    gpus: float = 0.0,
) -> Iterator[JobEvent]:
    """Like `run_jobs` on this machine, with at most `workers` jobs at a time; without `workers`, one per core.

    Each job reserves `gpus` GPUs. Ray shows a task only those that it reserved: without any, it trains on its core.
    """
    ray = _start(address)
    mark = _mark(out.resolve())
    board = ray.remote(num_cpus=0, max_restarts=-1)(_Board).remote()
    task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0)(
        _task
    )  # retries are counted here; Ray's own would multiply them
    waiting, tried = list(reversed(jobs)), Counter[str]()
    running: dict[Any, Job] = {}
    apart: set[str] = set()  # jobs that ran on a node without the directory: their files must be sent
    stopping = False
    try:
        while waiting or running:
            if stop.requested() and not stopping:
                stopping = True
                waiting.clear()
                for reference in running:
                    ray.cancel(reference)
            while waiting and len(running) < (workers or len(jobs)):
                job = waiting.pop()
                needed = job.name in apart or not job.path.is_dir()
                files = [ray.put(_read(job.path))] if needed else []
                place = Place(str(mark), str(Path.cwd()))
                running[task.remote(job.resolved(), place, board, files)] = job
            ready, _ = ray.wait(list(running), timeout=SECONDS_BETWEEN_LOOKS)
            for name, news in _news(ray, board):
                for job in running.values():
                    if job.name == name:
                        yield JobEvent(job, news)
            for reference in ready:
                job = running.pop(reference)
                news, files = _result(ray, reference)
                if news.text == NEEDS_FILES and not stopping:  # does not count as a try
                    apart.add(job.name)
                    waiting.append(job)
                    continue
                _write(job.path, files)
                tried[job.name] += 1
                hopeless = news.kind == "done" or stopping or news.hopeless
                if tried[job.name] <= retries and not hopeless:  # also if interrupted: its node was shut down
                    waiting.append(job)
                    yield retried(job, news)
                    continue
                yield JobEvent(job, news)
    finally:
        for reference in running:
            ray.cancel(reference)
        if running:
            ray.wait(list(running), num_returns=len(running), timeout=SECONDS_TO_LEAVE)
        mark.unlink(missing_ok=True)
        ray.shutdown()


def check_ray() -> Any:
    """Import Ray, or raise an error that says how to install it."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # no telemetry
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        return import_module("ray")
    except ImportError as error:
        raise InputError("executor", "ray", "Ray is not installed: pip install 'recombine[ray]'") from error


def check_address(address: str) -> None:
    """Refuse an unreachable address at once; Ray would try for minutes."""
    host, colon, port = address.rpartition(":")
    if address == "auto" or "://" in address:
        return
    if not colon or not port.isdecimal():
        raise InputError("address", address, "auto, or HOST:PORT")
    try:
        socket.create_connection((host, int(port)), 5).close()
    except (OSError, OverflowError) as error:
        raise InputError("address", address, f"no Ray cluster answers at this address ({error})") from error


def _start(address: str | None) -> Any:
    ray = check_ray()
    logging.getLogger("ray").setLevel(logging.ERROR)  # Ray logs about signals and tokens on every start
    try:
        quiet = {"log_to_driver": False, "configure_logging": False}
        with chdir("/"):  # Ray puts the current directory first on its processes' path; only root can write to /
            ray.init(address=address, include_dashboard=None if address else False, **quiet)
    except Exception as error:  # Ray has no narrower class for a node that is slow to start
        said = " ".join(str(error).split())
        if address is None:
            raise Failed(f"Ray did not start on this machine: {said}") from error
        raise InputError("address", address, f"no Ray cluster answers at this address ({said})") from error
    return ray


def _mark(out: Path) -> Path:
    """Create the marker file by which a node recognises the shared directory. Removes those of killed coordinators."""
    make_directories(out)
    for left in out.glob(f"{MARK}*"):
        left.unlink(missing_ok=True)
    mark = out / f"{MARK}{secrets.token_hex(8)}"
    mark.touch()
    return mark


class Place(NamedTuple):
    """Two paths on the coordinator's machine."""

    mark: str
    """A marker file in the sweep's directory: a node that sees it shares the directory."""
    directory: str
    """The current directory, from which a custom model is imported."""


class _Board:
    """An actor to which tasks report news, for the coordinator to read. It keeps only the last progress of each job."""

    def __init__(self) -> None:
        self.said: list[tuple[str, News]] = []

    def tell(self, name: str, news: News) -> None:
        if news.kind == "progress":
            self.said = [one for one in self.said if (one[0], one[1].kind) != (name, "progress")]
        self.said.append((name, news))

    def take(self) -> list[tuple[str, News]]:
        said, self.said = self.said, []
        return said


def _task(job: Job, place: Place, board: Any, files: list[Any]) -> tuple[News, dict[str, bytes]]:
    """Execute a job in one of Ray's processes. Returns its outcome, and its files if the directory is not shared.

    Most clusters share the directory, so files are sent only to a node that has asked for them (`NEEDS_FILES`).
    """
    global _prepared
    if not _prepared:
        prepare(threads=1)
        _prepared = True
    if Path(place.directory).is_dir():
        os.chdir(place.directory)
    shared, path = Path(place.mark).is_file(), job.path
    if not shared:
        if not files:
            return News(kind="interrupted", text=NEEDS_FILES), {}
        path = _cache() / hashlib.sha256(str(path).encode()).hexdigest()[:16] / path.name
        sent = import_module("ray").get(files[0])
        if not _is_as_far(path, sent):
            if path.exists():
                remove_directory(path)
            _write(path, sent)

    def tell(news: News) -> None:
        board.tell.remote(job.name, news)

    def work(stop: StopSignal) -> None:
        tell(News(kind="started"))
        execute_job(job.moved([path]), stop, tell)

    try:
        run_interruptibly(work, lambda text: None)
        news = News(kind="done")
    except (Interrupted, KeyboardInterrupt):
        news = News(kind="interrupted")
    except ERRORS as error:
        news = failure(error)
    if shared:
        return news, {}
    found = _read(path)
    if news.kind == "done" and job.kind == "train":
        remove_directory(path)  # the coordinator gets the files
    return news, found


_prepared = False


def _cache() -> Path:
    return (cache_directory() or Path(tempfile.gettempdir()) / f"recombine-{os.getuid()}") / "runs"


def _news(ray: Any, board: Any) -> list[tuple[str, News]]:
    """The news that tasks have reported. If the board's node is lost, Ray restarts it elsewhere: no news meanwhile."""
    try:
        return ray.get(board.take.remote(), timeout=10)
    except (ray.exceptions.RayError, TimeoutError):
        return []


def _result(ray: Any, reference: Any) -> tuple[News, dict[str, bytes]]:
    try:
        return ray.get(reference)
    except ray.exceptions.TaskCancelledError:
        return News(kind="interrupted"), {}
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None) or error
        said = f"{type(cause).__name__}: {next(iter(str(cause).splitlines()), '')}"
        hopeless = isinstance(error, ray.exceptions.RayTaskError)  # else: its process or node was lost
        return News(kind="failed", error=said, hopeless=hopeless), {}


def _read(path: Path) -> dict[str, bytes]:
    """All files in a directory, by their relative paths.

    The worker of a killed coordinator may still be removing old checkpoints. In that case the directory is read again.
    """
    for look in range(READ_ATTEMPTS):
        try:
            found = [file for file in sorted(path.rglob("*")) if file.is_file() and not file.is_symlink()]
            return {file.relative_to(path).as_posix(): file.read_bytes() for file in found}
        except FileNotFoundError:
            if look == READ_ATTEMPTS - 1:
                raise
    return {}


def _is_as_far(path: Path, sent: dict[str, bytes]) -> bool:
    """Whether the node already has a copy of this run that is at least as far as the one it was sent."""
    config = path / CONFIG
    if not config.is_file() or (CONFIG in sent and config.read_bytes() != sent[CONFIG]):
        return False
    here = max((one.name for one in (path / CHECKPOINTS).glob("step-*")), default="")
    return here >= max((name.split("/")[1] for name in sent if name.startswith(f"{CHECKPOINTS}/step-")), default="")


def _write(path: Path, files: dict[str, bytes]) -> None:
    """Write the files to a directory. Older checkpoints that are not among them are removed afterwards."""
    for name, data in files.items():
        inside = PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts:
            raise InputError("path", name, "is outside the run's directory")
        make_directories((path / inside).parent)
        replace_file(path / inside, data)
    kept = {path / PurePosixPath(name).parent for name in files}
    newest = max((one.name for one in kept if one.parent.name == CHECKPOINTS), default="")
    for other in (path / CHECKPOINTS).glob("step-*") if files else ():
        if other not in kept and other.name < newest:
            remove_directory(other)
