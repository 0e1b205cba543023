"""A server, its runs and its rows, and pages of other sites, for the tests."""

import ctypes
import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from threading import Event, Thread
from typing import Any

from recombine.config.toml import write_toml
from recombine.record.codec import encode
from recombine.record.reference import REFERENCE_NAMES, ReferenceScores, StoredReferences
from recombine.record.run_state import Status
from recombine.record.score import MetricsRow, ProbeScores, Score, SplitScore
from recombine.record.sweep import Selection, SelectionScores, SweepLine
from recombine.storage.archive import open_archive, write_archive
from recombine.storage.checkpoint import Checkpoint, list_checkpoints, read_checkpoint, save_checkpoint
from recombine.storage.demo import demo_archives
from recombine.storage.reader import SELECTION_FORMAT
from recombine.storage.reference_files import _depends, reference_file
from tests.reliability.small_run import finish, small_config


class Answer:
    """Status, headers and body."""

    def __init__(self, response: HTTPResponse):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    def json(self) -> Any:
        return json.loads(self.body)


class Address:
    """The address of a server."""

    def __init__(self, port: int, process: subprocess.Popen, terminal: Path):
        self.port, self.process, self.terminal = port, process, terminal

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    def said(self) -> str:
        """What the terminal shows of its errors so far."""
        return self.terminal.read_text(encoding="utf-8")

    def get(self, path: str, method: str = "GET", timeout: float = 120, **headers: str) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in ({"Host": f"localhost:{self.port}"} | headers).items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders()
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def raw(self, data: bytes) -> bytes:
        """Send these bytes, and return whatever comes back."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=120) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@contextmanager
def serving(
    directory: Path | None,
    *more: str,
    program: Sequence[str] = (sys.executable, "-m", "recombine"),
    cwd: Path | None = None,
) -> Iterator[Address]:
    place = () if directory is None else (str(directory),)
    share = () if "--share" in more else ("--share", "1")  # the other tests make the machine busy
    command = [*program, "serve", *place, "--port", "0", *share, *more]
    with (
        tempfile.NamedTemporaryFile("w") as terminal,  # a pipe that nobody reads fills up, and stops the server
        subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=terminal, text=True) as process,
    ):
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("http://localhost:"), Path(terminal.name).read_text()
        try:
            yield Address(int(line.strip().rsplit(":", 1)[1]), process, Path(terminal.name))
        finally:
            process.terminate()
            process.communicate(timeout=30)


def impatient(ask: float = 600.0, read: float = 600.0) -> tuple[str, ...]:
    """The command, with other limits for clients that are slow."""
    code = (
        "import sys\n"
        "import recombine.serve.connection as connection\n"
        "from recombine.cli.main import main\n"
        f"connection.SECONDS_TO_ASK, connection.SECONDS_TO_READ = {ask}, {read}\n"
        "sys.exit(main())\n"
    )
    return (sys.executable, "-c", code)


def score(r2: float) -> Score:
    return Score(r2=r2, nmse=1 - r2, r2_variance=r2, mse=1 - r2)


def split_score(r2: float) -> SplitScore:
    return SplitScore(r2=r2, nmse=1 - r2, r2_variance=r2, mse=1 - r2)


def row(step: int, ood: float = 0.5) -> str:
    """A line of `metrics.jsonl`."""
    found = MetricsRow(
        step=step,
        loss=1.0 / (step + 1),
        in_dist=split_score(0.25),
        ood=split_score(ood),
        control=split_score(0.0),
        control_modules=split_score(0.0),
        probe=ProbeScores(in_dist=(0.1, 0.2), ood=(0.1, 0.15), latent=None),
    )
    return f"{encode(found)}\n"


def selection(step: int, select: float, report: float) -> str:
    """The `selection.json` of a run, with R² on held-out masks for selection and for reporting."""
    chosen, reported = (SelectionScores(in_dist=score(1.0), ood=score(r2)) for r2 in (select, report))
    return encode(Selection(SELECTION_FORMAT, step, chosen, reported))


def demo_run(name: str) -> Path:
    """`quick/transformer-connected+-seed0` as a path into its archive."""
    study, _, run = name.partition("/")
    return demo_archives()[study] / run


def copy_demo_run(name: str, to: Path) -> None:
    path = demo_run(name)
    archive = open_archive(path.parent)
    to.mkdir(parents=True)
    for member in archive.names():
        if member.startswith(f"{path.name}/"):
            (to / Path(member).name).write_bytes(archive.read(member))


def copy_demo(study: str, to: Path) -> None:
    """Copy the references and every run of a study that has its parameters."""
    archive = open_archive(demo_archives()[study])
    playable = {name.partition("/")[0] for name in archive.names() if name.endswith("model.safetensors")}
    for member in archive.names():
        if member.partition("/")[0] in playable | {"references"}:
            (to / member).parent.mkdir(parents=True, exist_ok=True)
            (to / member).write_bytes(archive.read(member))


FOREIGN = 424242  # in everything outside: a seed, a step, a score, a name
AT_CWD, EXCHANGE = -100, 2  # of renameat2


def make_place(place: Path) -> None:
    """Make `served` and `outside`, two similar directories: a study with a run, references, a list, and an archive."""
    for name, number in (("served", 0), ("outside", FOREIGN)):
        study = place / name / "study"
        run, config = study / "run", small_config()
        if number == 0:
            finish(run)
            (run / "selection.json").write_text(selection(12, select=0.5, report=0.5))
        else:
            shutil.copytree(place / "served" / "study" / "run", run)
            _make_foreign(run)
        scores = ReferenceScores(
            in_dist=score(number), ood=score(number), control=score(0), control_modules=score(0), active_modules={}
        )
        stored = StoredReferences(_depends(config), dict.fromkeys(REFERENCE_NAMES, scores))
        (study / "references").mkdir()
        (study / "references" / reference_file(config)).write_text(encode(stored))
        (study / "sweep.jsonl").write_text(f"{encode(SweepLine('run', f'best{number}', 0, {}, 12))}\n")
        files = {f"run/{file.name}": file.read_bytes() for file in run.iterdir() if file.is_file()}
        write_archive(study / "kept.zip", files | {"sweep.jsonl": (study / "sweep.jsonl").read_bytes()})


def _make_foreign(run: Path) -> None:
    config = small_config(seed=FOREIGN)
    (run / "config.toml").write_text(write_toml(config))
    (run / "metrics.jsonl").write_text(row(FOREIGN, ood=0.424242))
    (run / "status.json").write_text(encode(Status("done", FOREIGN, FOREIGN, error=f"from {FOREIGN}")))
    (run / "selection.json").write_text(selection(12, select=FOREIGN, report=FOREIGN))
    newest = read_checkpoint(list_checkpoints(run / "checkpoints")[0])
    texts = newest.texts | {name: (run / name).read_text() for name in ("config.toml", "metrics.jsonl")}
    for step in (newest.step, FOREIGN):  # one has the name of one inside
        save_checkpoint(run / "checkpoints", Checkpoint(step, newest.arrays, texts, newest.identity))


def is_foreign(text: str) -> bool:
    return str(FOREIGN) in text


def exchange(one: Path, other: Path) -> None:
    """Exchange two paths, atomically if the system can."""
    library = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    if hasattr(library, "renameat2") and library.renameat2(AT_CWD, names[0], AT_CWD, names[1], EXCHANGE) == 0:
        return
    if hasattr(library, "renameat2") and ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(ctypes.get_errno(), "cannot be exchanged", str(one))
    aside = one.with_name(f".{one.name}.aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


@contextmanager
def swapping(path: Path, target: Path) -> Iterator[None]:
    """While the block runs, the path alternates between its content and a link to the target."""
    link, ended = path.with_name(f".{path.name}.link"), Event()
    link.symlink_to(target)

    def swap() -> None:
        while not ended.is_set():
            exchange(path, link)

    thread = Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        if path.is_symlink():
            exchange(path, link)
        link.unlink()
