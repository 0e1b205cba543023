"""Runs in archives are shown like runs in directories, and a damaged or hostile archive harms only itself."""

import asyncio
import os
import shutil
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest

from recombine.record.codec import encode
from recombine.record.sweep import SweepLine
from recombine.run.export import export_runs
from recombine.serve import discover
from recombine.serve.explorer.exchange import ComposedTask
from recombine.serve.explorer.explorer import Explorer
from recombine.serve.explorer.scene import NUM_QUERIES
from recombine.serve.library import Library
from recombine.serve.live_verdicts import Verdicts
from recombine.serve.run_summary import RunSummary
from recombine.storage.archive import open_archive, write_archive
from recombine.storage.source import SELECTION, find_runs
from tests.reliability.small_run import finish, small_config, without_copies
from tests.serve.server import row, selection, serving

RUNS = ("a-seed0", "a-seed1")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of a sweep, with the list of the sweep."""
    study = tmp_path_factory.mktemp("original") / "study"
    for seed, name in enumerate(RUNS):
        finish(study / name, small_config(seed=seed))
        (study / name / SELECTION).write_text(selection(12, select=0.25 + 0.5 * seed, report=0.5))
    lines = [SweepLine(name, "a", seed, {}, 12) for seed, name in enumerate(RUNS)]
    (study / "sweep.jsonl").write_text("".join(f"{encode(line)}\n" for line in lines))
    return study


@pytest.fixture(scope="module")
def archive(study: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "kept.zip"
    export_runs(list(find_runs(study)), path, weights=True)
    return path


def members(archive: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def looked(root: Path) -> Library:
    library = Library(root)
    library.refresh()
    return library


def shown(library: Library) -> dict[str, RunSummary]:
    return {run.name: run for run in library.table()}


@contextmanager
def little_memory(megabytes: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < megabytes << 20
    finally:
        tracemalloc.stop()


def test_an_archive_is_shown_as_the_directory_that_it_was(study: Path, archive: Path, tmp_path: Path) -> None:
    (tmp_path / "study").mkdir()
    shutil.copy(archive, tmp_path / "study")
    original, archived = looked(study.parent), looked(tmp_path)
    assert list(shown(archived)) == ["study/a-seed0", "study/a-seed1"]
    assert shown(archived) == shown(original)
    assert all(run.playable and run.state == "done" for run in archived.table())
    for name in shown(archived):
        assert archived.curve(name) == original.curve(name) != []
    assert archived.difference(*shown(archived)) == {"seed": ("0", "1")}
    one, other = (asyncio.run(Verdicts(library).answer("study")) for library in (original, archived))
    assert one == other
    assert len(one.verdicts) == 7


def test_a_sweep_in_an_archive_is_shown_as_a_directory_of_its_name(study: Path, tmp_path: Path) -> None:
    """Other sweeps beside it may have runs of the same names."""
    for name in ("study", "other"):
        export_runs(list(find_runs(study)), tmp_path / f"{name}.zip", lists=[study / "sweep.jsonl"])
    original, archived = looked(study.parent), looked(tmp_path)
    names = [f"{name}/{run}" for name in ("other", "study") for run in RUNS]
    assert list(shown(archived)) == names
    assert archived.studies() == ["other", "study"]
    (swept,) = original.sweeps()
    assert swept.best == (0.5, "a")
    assert [sweep.name for sweep in archived.sweeps()] == ["other", "study"]
    assert archived.sweeps()[1] == swept


def test_runs_of_the_same_name(archive: Path, tmp_path: Path) -> None:
    """No run hides another."""
    for name in ("a", "b"):
        shutil.copy(archive, tmp_path / f"{name}.zip")
    library = looked(tmp_path)
    assert list(shown(library)) == [*RUNS, *(f"b/{run}" for run in RUNS)]
    assert library.find(f"b/{RUNS[0]}").path == tmp_path / "b.zip" / RUNS[0]


def test_a_model_in_an_archive_is_explored(study: Path, archive: Path) -> None:
    task = ComposedTask((0.5, 0.5, 0, 0, 0, 0), 2)
    explorer, paths = Explorer(), (study / RUNS[0], archive / RUNS[0])
    assert explorer.describe(paths[0]) == explorer.describe(paths[1])
    original, archived = (explorer.explore([path], task) for path in paths)
    assert archived.truth == original.truth
    np.testing.assert_allclose(archived.models[0].y, original.models[0].y, atol=1e-6)


def test_the_server_explores_an_archive(archive: Path, tmp_path: Path) -> None:
    """Also below a directory whose name is not text."""
    place = Path(os.fsdecode(os.fsencode(tmp_path) + b"/runs\xff"))
    place.mkdir()
    shutil.copy(archive, place)
    task = urlencode({"run": f"runs\\xff/{RUNS[0]}", "weights": "1,1,0,0,0,0", "length": 2})
    with serving(tmp_path) as server:
        described = server.get(f"/api/models?{task}", timeout=300)
        assert described.status == 200, described.body
        assert described.json()["models"][0]["step"] == 12
        explored = server.get(f"/api/explore?{task}", timeout=300)
        assert explored.status == 200, explored.body
        assert len(explored.json()["models"][0]["y"]) == NUM_QUERIES


def test_an_archive_is_listed_again_only_when_it_changes(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This includes an archive that cannot be read."""
    opened: list[str] = []
    noting = lambda path, below: opened.append(path.name) or open_archive(path, below)  # noqa: E731
    monkeypatch.setattr(discover, "open_archive", noting)
    shutil.copy(archive, tmp_path / "good.zip")
    (tmp_path / "bad.zip").write_bytes(b"garbage")
    library = looked(tmp_path)
    before = {name: library.curve(name) for name in RUNS}
    assert library.refresh() == library.refresh() == ([], [])
    assert sorted(opened) == ["bad.zip", "good.zip"]
    changed = members(archive) | {f"{RUNS[0]}/metrics.jsonl": (row(3) + row(4)).encode()}
    del changed[f"{RUNS[0]}/manifest.json"]
    write_archive(tmp_path / "good.zip", changed)
    assert RUNS[0] in library.refresh().changed
    assert library.refresh() == ([], [])
    assert sorted(opened) == ["bad.zip", "good.zip", "good.zip"]
    assert [point.step for point in library.curve(RUNS[0])] == [3, 4]
    assert library.curve(RUNS[1]) == before[RUNS[1]]
    (tmp_path / "good.zip").unlink()
    assert library.refresh() == ([], list(RUNS))


def test_a_directory_goes_before_an_archive(study: Path, archive: Path, tmp_path: Path) -> None:
    shutil.copy(archive, tmp_path)
    library = looked(tmp_path)
    before = library.curve(RUNS[0])
    shutil.copytree(study / RUNS[0], tmp_path / RUNS[0])
    without_copies(tmp_path / RUNS[0])
    (tmp_path / RUNS[0] / "metrics.jsonl").write_text(row(7))
    assert set(library.refresh().changed) == {RUNS[0], f"kept/{RUNS[0]}"}
    assert [point.step for point in library.curve(RUNS[0])] == [7]
    assert library.curve(f"kept/{RUNS[0]}") == before
    shutil.rmtree(tmp_path / RUNS[0])
    assert library.refresh() == ([RUNS[0]], [f"kept/{RUNS[0]}"])
    assert library.curve(RUNS[0]) == before


def test_damaged_archives(study: Path, archive: Path, tmp_path: Path) -> None:
    data = archive.read_bytes()
    damaged = {"garbage": os.urandom(5_000), "empty": b"", "cut": data[: len(data) // 2], "head": data[:4]}
    for name, content in damaged.items():
        (tmp_path / f"{name}.zip").write_bytes(content)
    (tmp_path / ".hidden.zip").write_bytes(data)  # an archive that is still being written
    (tmp_path / "link.zip").symlink_to(archive)
    os.mkfifo(tmp_path / "pipe.zip")
    shutil.copytree(study / RUNS[0], tmp_path / "good")
    library = looked(tmp_path)
    runs = shown(library)
    assert set(runs) == {"good", *(f"{name}.zip" for name in damaged)}
    assert runs.pop("good").state == "done"
    for name, run in runs.items():
        assert run.state == "unreadable"
        assert "is not a readable ZIP archive" in str(run.error)
        assert library.curve(name) == []
    answer = asyncio.run(Verdicts(library).answer("."))
    assert answer.left_out == tuple(sorted(runs))
    assert len(answer.verdicts) == 7
    shutil.copy(archive, tmp_path / "cut.zip")
    assert library.refresh() == (list(RUNS), ["cut.zip"]), "it was only on its way"


def test_a_damaged_member_harms_its_own_run(archive: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        offset = opened.getinfo(f"{RUNS[0]}/config.toml").header_offset
    data = bytearray(archive.read_bytes())
    data[offset + 60 : offset + 90] = bytes(30)
    (tmp_path / "damaged.zip").write_bytes(data)
    runs = shown(looked(tmp_path))
    assert {name: run.state for name, run in runs.items()} == {RUNS[0]: "unreadable", RUNS[1]: "done"}


def test_names_that_lead_out_of_an_archive(study: Path, archive: Path, tmp_path: Path) -> None:
    """Nothing is unpacked, and such a name never becomes a run, whose path would lead outside."""
    (tmp_path / "served").mkdir()
    shutil.copytree(study / RUNS[1], tmp_path / "outside")
    config = members(archive)[f"{RUNS[0]}/config.toml"]
    names = ["../outside", "../../outside", str(tmp_path / "outside"), "a/../../outside", "./b", "//c", ".hidden", ""]
    hostile = {f"{name}/config.toml": config for name in [*names, "one/level/down"]}
    write_archive(tmp_path / "served" / "hostile.zip", hostile)
    library = looked(tmp_path / "served")
    assert list(shown(library)) == ["one/level/down"]
    assert library.find("one/level/down").path == tmp_path / "served" / "hostile.zip" / "one/level/down"
    assert sorted(path.name for path in tmp_path.rglob("*") if path.parent != tmp_path / "outside") == sorted(
        ["served", "hostile.zip", "outside", *(path.name for path in (tmp_path / "outside").rglob("*/*"))]
    )


def test_an_archive_that_would_fill_the_memory(study: Path, archive: Path, tmp_path: Path) -> None:
    """A megabyte that unpacks to a gigabyte of metrics: they are never unpacked, and the other run is shown."""
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as bomb:
        for name, data in members(archive).items():
            if name != f"{RUNS[0]}/metrics.jsonl":
                bomb.writestr(name, data)
        with bomb.open(zipfile.ZipInfo(f"{RUNS[0]}/metrics.jsonl"), "w", force_zip64=True) as member:
            for _ in range(64):
                member.write(bytes(1 << 24))
    with little_memory(megabytes=30):
        library = looked(tmp_path)
        runs = shown(library)
        assert library.curve(RUNS[0]) == []
        answer = asyncio.run(Verdicts(library).answer("."))
    assert {name: run.state for name, run in runs.items()} == {RUNS[0]: "unreadable", RUNS[1]: "done"}
    assert runs[RUNS[0]].error == "metrics.jsonl has 1024 MB: too large to read from an archive"
    assert answer.left_out == (RUNS[0],)
    assert len(answer.verdicts) == 7


def test_more_runs_than_there_is_time_for(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(archive, tmp_path)
    monkeypatch.setitem(discover.LARGEST_IN_ALL, "config.toml", 1_000)
    (run,) = looked(tmp_path).table()
    assert (run.name, run.state) == ("kept.zip", "unreadable")
    assert "too large to read" in str(run.error)


def test_more_archives_than_files_can_be_open(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discover, "MOST_ARCHIVES", 2)
    for name in "abc":
        (tmp_path / name).mkdir()
        shutil.copy(archive, tmp_path / name)
    library = looked(tmp_path)
    kept = [f"{name}/{run}" for name in "ab" for run in RUNS]
    assert list(shown(library)) == [*kept, "c/kept.zip"]
    assert shown(library)["c/kept.zip"].error == "there are more than 2 archives"
    shutil.rmtree(tmp_path / "a")
    library.refresh()
    assert list(shown(library)) == [f"{name}/{run}" for name in "bc" for run in RUNS]
