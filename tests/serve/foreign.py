"""Runs outside the served directory, and links to them that replace files and directories inside it."""

import ctypes
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from recombine.config.toml import write_toml
from recombine.record.codec import encode
from recombine.record.reference import REFERENCE_NAMES, ReferenceScores, StoredReferences
from recombine.record.run_state import Status
from recombine.record.sweep import SweepLine
from recombine.storage.archive import write_archive
from recombine.storage.checkpoint import Checkpoint, list_checkpoints, read_checkpoint, save_checkpoint
from recombine.storage.reference_files import _depends, reference_file
from tests.reliability.small_run import finish, small_config
from tests.serve.server import row, score, selection

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
