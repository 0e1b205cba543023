"""Files that several processes may write: no signal interrupts a write, and kills are cleaned up."""

import os
from pathlib import Path
from typing import Any

import pytest

from recombine.config.toml import write_toml
from recombine.jobs.execute import execute_job
from recombine.jobs.protocol import Job, JobPart
from recombine.run.signals import StopSignal
from recombine.storage import reference_files, shared_file
from recombine.storage.reference_files import reference_file, store_references
from recombine.storage.shared_file import replace_shared
from recombine.storage.writer import RunDirectory
from tests.reliability.small_run import small_config


def leave(path: Path, age: float) -> Path:
    """Create the temporary file of a process that was killed this many seconds ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    left = path.with_name(f".{path.name}.{round(age):08d}.new")
    left.write_text("{")
    modified = left.stat().st_mtime - age
    os.utime(left, (modified, modified))
    return left


@pytest.mark.parametrize("name", ["scorecard.json", "selection.json"])
def test_a_run_that_resumes_is_cleaned_up(tmp_path: Path, name: str) -> None:
    """A file that another process may still be writing is kept."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock").touch()
    old, new = leave(tmp_path / "run" / name, 3600), leave(tmp_path / "run" / name, 0)
    with RunDirectory(tmp_path / "run"):
        assert not old.exists()
        assert new.exists()


def test_whoever_writes_a_file_cleans_up(tmp_path: Path) -> None:
    old, other = leave(tmp_path / "scorecard.json", 3600), leave(tmp_path / "else.json", 3600)
    replace_shared(tmp_path / "scorecard.json", b"{}")
    assert not old.exists()
    assert other.exists()


def test_references_are_cleaned_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_files, "_completed", lambda *_: {})
    config = small_config()
    old = leave(tmp_path / "references" / reference_file(config), 3600)
    store_references(tmp_path, config)
    assert not old.exists()


def test_no_signal_ends_a_job_while_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training and measuring may be ended at once."""
    stop, written = StopSignal(), []

    def replace_file(path: Path, data: bytes) -> None:
        written.append((path.name, stop._region is not None))
        shared_file_replace(path, data)

    shared_file_replace: Any = shared_file.replace_file
    monkeypatch.setattr(shared_file, "replace_file", replace_file)
    config, run = small_config(), tmp_path / "run"
    for job in (
        Job(name="r", kind="references", parts=(JobPart(write_toml(config), str(tmp_path / "references")),)),
        Job(
            name="t",
            kind="train",
            parts=(JobPart(write_toml(config), str(run)),),
            after=("scorecard", "selection"),
        ),
    ):
        execute_job(job, stop, lambda news: None)
    assert dict(written) == {reference_file(config): False, "scorecard.json": False, "selection.json": False}
