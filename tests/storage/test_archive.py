"""Archives of runs, and files that several processes share."""

import dataclasses
import json
import os
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recombine.cli.main import main
from recombine.config.preset import preset_config
from recombine.config.schema import Config
from recombine.config.toml import write_toml
from recombine.errors import InputError
from recombine.files import NotAFile
from recombine.jobs.execute import execute_job
from recombine.jobs.protocol import Job, JobPart
from recombine.record.reference import REFERENCE_NAMES
from recombine.run.signals import StopSignal
from recombine.storage import locking, reference_files
from recombine.storage import reference_files as stored
from recombine.storage.archive import open_archive, write_archive
from recombine.storage.locking import replace_shared
from recombine.storage.reader import read_run
from recombine.storage.reference_files import reference_file, store_references
from recombine.storage.source import find_runs, open_run
from recombine.storage.writer import RunDirectory
from recombine.study.collect import collect
from tests.reliability.small_run import finish, small_config


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two examined runs, in `runs/`, and in `runs.zip` with their parameters."""
    place = tmp_path_factory.mktemp("place")
    for seed in (0, 1):
        finish(place / "runs" / f"seed{seed}", small_config(seed=seed))
        assert main(["eval", str(place / "runs" / f"seed{seed}"), "--json"]) == 0
    assert main(["export", str(place / "runs"), "--out", str(place / "runs.zip"), "--weights"]) == 0
    return place


def test_the_same_study(place: Path) -> None:
    from_directory, from_archive = collect([place / "runs"]), collect([place / "runs.zip"])
    assert [run.path.name for run in from_archive.runs] == ["seed0", "seed1"]
    for one, other in zip(from_directory.runs, from_archive.runs, strict=True):
        elsewhere = dataclasses.replace(other, path=one.path)
        assert elsewhere == one
        assert other.references is not None
        assert other.scorecard is not None


def test_the_same_examination(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The parameters in the archive are those of the checkpoint."""
    capsys.readouterr()
    shown = []
    for run in (place / "runs" / "seed1", place / "runs.zip" / "seed1"):
        assert main(["eval", str(run), "--json"]) == 0
        shown.append(json.loads(capsys.readouterr().out))
    assert shown[0] == shown[1]


def test_a_run_again_from_an_archive(place: Path, tmp_path: Path) -> None:
    config = place / "runs.zip" / "seed1" / "config.toml"
    assert main(["train", "--config", str(config), "--out", str(tmp_path / "again")]) == 0
    again, before = read_run(open_run(tmp_path / "again")), read_run(open_run(place / "runs" / "seed1"))
    assert again.config == before.config
    assert again.rows == before.rows


def test_archives_and_directories_side_by_side(place: Path, tmp_path: Path) -> None:
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "a.zip").write_bytes((place / "runs.zip").read_bytes())
    finish(tmp_path / "study" / "seed2", small_config(seed=2), stop_at=4)
    assert [run.seed for run in collect([tmp_path / "study"]).runs] == [0, 1, 2]


def test_equal_runs_make_equal_bytes(place: Path, tmp_path: Path) -> None:
    assert main(["export", str(place / "runs"), "--out", str(tmp_path / "again.zip"), "--weights"]) == 0
    assert (tmp_path / "again.zip").read_bytes() == (place / "runs.zip").read_bytes()
    assert main(["export", str(place / "runs.zip"), "--out", str(tmp_path / "third.zip"), "--weights"]) == 0
    assert (tmp_path / "third.zip").read_bytes() == (place / "runs.zip").read_bytes()


def test_it_is_read_by_any_program(place: Path) -> None:
    with zipfile.ZipFile(place / "runs.zip") as archive:
        assert archive.testzip() is None
        rows = archive.read("seed0/metrics.jsonl")
    assert rows == (place / "runs" / "seed0" / "metrics.jsonl").read_bytes()


def test_nothing_longer_than_allowed_is_unpacked(tmp_path: Path) -> None:
    """Nor is more unpacked than the header of the member says, even if the header is wrong."""
    path = tmp_path / "bomb.zip"
    write_archive(path, {"run/config.toml": b"x" * 10_000_000})
    archive = open_archive(path)
    with pytest.raises(NotAFile, match="at most 1000"):
        archive.read("run/config.toml", 1000)
    data = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):  # the sizes before compression
        at = data.index(signature) + offset
        data[at : at + 4] = (500).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(NotAFile, match=r"damaged|longer"):
        open_archive(path).read("run/config.toml", 1000)


@pytest.mark.parametrize("change", ["truncated", "garbage", "flipped"])
def test_damage_is_one_clear_line(place: Path, tmp_path: Path, change: str, capsys: pytest.CaptureFixture[str]) -> None:
    path, data = tmp_path / "runs.zip", bytearray((place / "runs.zip").read_bytes())
    at = data.index(b"seed0/metrics.jsonl") + 200
    data[at] ^= change == "flipped"
    path.write_bytes({"truncated": data[:-30], "garbage": b"not a zip", "flipped": data}[change])
    assert main(["report", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert str(tmp_path)[:40] in error
    assert not (tmp_path / "report").exists()


def test_no_name_leads_out_of_it(tmp_path: Path) -> None:
    """A member is looked up by its name, and nothing is written."""
    (tmp_path / "secret").write_text("secret")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("../secret/config.toml", "seed = 0")
        archive.writestr("/config.toml", "seed = 0")
    before = sorted(tmp_path.rglob("*"))
    for source in find_runs(tmp_path / "a.zip"):
        with pytest.raises(NotAFile):
            source.read("secret")
    assert sorted(tmp_path.rglob("*")) == before


def test_links_are_not_followed(place: Path, tmp_path: Path) -> None:
    (tmp_path / "link.zip").symlink_to(place / "runs.zip")
    assert list(find_runs(tmp_path)) == []
    with pytest.raises(InputError):
        open_run(tmp_path / "link.zip" / "seed0")


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

    shared_file_replace: Any = locking.replace_file
    monkeypatch.setattr(locking, "replace_file", replace_file)
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


@pytest.fixture
def config() -> Config:
    config = preset_config("smoke", "transformer")
    return replace(config, measure=replace(config.measure, episodes=8))


def test_what_is_missing_is_added(tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """The missing scores are computed, and the others are kept."""
    assert stored.missing_references(tmp_path, config) == list(REFERENCE_NAMES)
    scores = stored.store_references(tmp_path, config)
    assert tuple(scores) == REFERENCE_NAMES
    assert stored.missing_references(tmp_path, config) == []
    path = tmp_path / "references" / stored.reference_file(config)
    older = json.loads(path.read_text())
    del older["scores"]["trained_task"], older["sources"], older["sha256"]  # of before digests were kept
    older["scores"]["ridge"]["ood"]["r2"] = -7.0
    path.write_text(json.dumps(older))
    assert stored.missing_references(tmp_path, config) == ["trained_task"]
    again = stored.store_references(tmp_path, config)
    assert tuple(again) == REFERENCE_NAMES
    assert again["trained_task"] == scores["trained_task"]
    assert again["ridge"].r2("ood") == -7.0
    monkeypatch.setattr("recombine.measure.reference.score.reference_scores", None)  # nothing is left to compute
    assert stored.store_references(tmp_path, config) == again
