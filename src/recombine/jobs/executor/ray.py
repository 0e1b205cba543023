"""A Ray cluster, on this machine or an existing one: a task for each job.

Where the sweep's directory is not shared with a node, a run is carried out in that node's own cache, and its directory
fetched back: when it is done, and when it is interrupted.
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
from recombine.run.home import cache_directory
from recombine.run.machine import prepare
from recombine.run.signals import Interrupted, StopSignal, run_interruptibly
from recombine.storage.source import CHECKPOINTS, CONFIG

SECONDS_BETWEEN_LOOKS = 0.2
SECONDS_TO_LEAVE = 60.0
MARK = ".shared-"
NEEDS_FILES = "the run's files are not on this node"
LOOKS = 20  # at a directory in which files come and go


def run_jobs_on_ray(
    jobs: Sequence[Job], out: Path, address: str | None, workers: int | None, stop: StopSignal, retries: int
) -> Iterator[JobEvent]:
    """As `run_jobs` on this machine. `workers`: at most so many at a time; without it, as many as there are cores."""
    ray = _start(address)
    mark = _mark(out.resolve())
    board = ray.remote(num_cpus=0, max_restarts=-1)(_Board).remote()
    task = ray.remote(num_cpus=1, max_retries=0)(_task)  # we count the tries, and Ray would multiply them
    waiting, tried = list(reversed(jobs)), Counter[str]()
    running: dict[Any, Job] = {}
    apart: set[str] = set()  # jobs that came to a node without the directory: they need their files
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
                if news.text == NEEDS_FILES and not stopping:  # not tried yet
                    apart.add(job.name)
                    waiting.append(job)
                    continue
                _write(job.path, files)
                tried[job.name] += 1
                hopeless = news.kind == "done" or stopping or news.hopeless
                if tried[job.name] <= retries and not hopeless:  # interrupted, too: its node was told to leave
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
    """The library, if it is installed."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing is reported to anybody
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        return import_module("ray")
    except ImportError as error:
        raise InputError("executor", "ray", "Ray is not installed: pip install 'recombine[ray]'") from error


def check_address(address: str) -> None:
    """Refuse at once what Ray would try to reach for minutes."""
    host, colon, port = address.rpartition(":")
    if address == "auto" or "://" in address:
        return
    if not colon or not port.isdecimal():
        raise InputError("address", address, "auto, or HOST:PORT")
    try:
        socket.create_connection((host, int(port)), 5).close()
    except (OSError, OverflowError) as error:
        raise InputError("address", address, f"no Ray cluster is there ({error})") from error


def _start(address: str | None) -> Any:
    ray = check_ray()
    logging.getLogger("ray").setLevel(logging.ERROR)  # it tells of its signals and tokens, on every start
    try:
        quiet = {"log_to_driver": False, "configure_logging": False}
        with chdir("/"):  # Ray puts the current directory first on the path of its processes; only root writes here
            ray.init(address=address, include_dashboard=None if address else False, **quiet)
    except Exception as error:  # of a node that is slow to start, Ray says it in no narrower class
        said = " ".join(str(error).split())
        if address is None:
            raise Failed(f"Ray did not start on this machine: {said}") from error
        raise InputError("address", address, f"no Ray cluster is there ({said})") from error
    return ray


def _mark(out: Path) -> Path:
    """A file by which a node can tell whether it has the same directory. Killed coordinators leave theirs."""
    make_directories(out)
    for left in out.glob(f"{MARK}*"):
        left.unlink(missing_ok=True)
    mark = out / f"{MARK}{secrets.token_hex(8)}"
    mark.touch()
    return mark


class Place(NamedTuple):
    """Where the coordinator is."""

    mark: str
    """A file by which a node can tell whether it has the same directory."""
    directory: str
    """From where a custom model is imported."""


class _Board:
    """Where tasks tell how far they are, and the coordinator reads it. Only the last progress of each counts."""

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
    """In one of Ray's processes: how the job ended, and its files where the directory is not shared.

    Most clusters share it: the files are sent only to a node that has asked for them.
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
        if not _goes_further(path, sent):
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
        remove_directory(path)  # it is on its way
    return news, found


_prepared = False


def _cache() -> Path:
    return (cache_directory() or Path(tempfile.gettempdir()) / f"recombine-{os.getuid()}") / "runs"


def _news(ray: Any, board: Any) -> list[tuple[str, News]]:
    """What tasks have told. If the board's node is gone, it is made anew elsewhere: no news for a while."""
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
        hopeless = isinstance(error, ray.exceptions.RayTaskError)  # of our code; else its process or its node is gone
        return News(kind="failed", error=said, hopeless=hopeless), {}


def _read(path: Path) -> dict[str, bytes]:
    """All files of a directory, by their paths in it.

    The worker of a coordinator that was killed may still remove old checkpoints: then it is read once more.
    """
    for look in range(LOOKS):
        try:
            found = [file for file in sorted(path.rglob("*")) if file.is_file() and not file.is_symlink()]
            return {file.relative_to(path).as_posix(): file.read_bytes() for file in found}
        except FileNotFoundError:
            if look == LOOKS - 1:
                raise
    return {}


def _goes_further(path: Path, sent: dict[str, bytes]) -> bool:
    """Whether what a node has of a run is the same run as what it was sent, and further."""
    config = path / CONFIG
    if not config.is_file() or (CONFIG in sent and config.read_bytes() != sent[CONFIG]):
        return False
    here = max((one.name for one in (path / CHECKPOINTS).glob("step-*")), default="")
    return here >= max((name.split("/")[1] for name in sent if name.startswith(f"{CHECKPOINTS}/step-")), default="")


def _write(path: Path, files: dict[str, bytes]) -> None:
    """The files in a directory; checkpoints that are not among them are older, and removed after the others came."""
    for name, data in files.items():
        inside = PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts:
            raise InputError("path", name, "outside the run's directory")
        make_directories((path / inside).parent)
        replace_file(path / inside, data)
    kept = {path / PurePosixPath(name).parent for name in files}
    newest = max((one.name for one in kept if one.parent.name == CHECKPOINTS), default="")
    for other in (path / CHECKPOINTS).glob("step-*") if files else ():
        if other not in kept and other.name < newest:
            remove_directory(other)
