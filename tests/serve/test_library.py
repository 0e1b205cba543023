"""The library follows a directory that grows, shrinks, and contains broken files."""

import errno
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from recombine.config.schema import Config
from recombine.errors import InputError
from recombine.record.codec import encode
from recombine.record.run_state import RunState, Status
from recombine.record.score import MetricsRow
from recombine.record.sweep import SweepLine
from recombine.serve import run_summary
from recombine.serve.explorer.model import load_explored
from recombine.serve.library import Library
from recombine.serve.run_detail import read_detail
from recombine.serve.run_summary import RunSummary
from recombine.storage.reader import last_row, read_config
from recombine.storage.source import SELECTION, RunSource
from tests.reliability.small_run import finish, small_config, without_copies
from tests.serve.server import row, selection

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("finished") / "run"
    finish(path)
    return path


def shown(library: Library) -> dict[str, RunSummary]:
    """The table by name, after one refresh."""
    library.refresh()
    return {run.name: run for run in library.table()}


def status(state: RunState, step: int, error: str | None = None) -> str:
    return encode(Status(state, step, 12, error=error))


def test_a_change_is_told_once(finished: Path, tmp_path: Path) -> None:
    library = Library(tmp_path)
    assert library.refresh() == ([], [])
    shutil.copytree(finished, tmp_path / "study" / "a")
    assert library.refresh() == (["study/a"], [])
    assert library.refresh() == ([], [])
    (run,) = library.table()
    rows = (finished / "metrics.jsonl").read_text().splitlines()
    assert run.ood == pytest.approx(json.loads(rows[-1])["ood"]["r2"], rel=1e-5)
    assert (run.state, run.step, run.study) == ("done", 12, "study")
    without_copies(tmp_path / "study" / "a")
    with (tmp_path / "study" / "a" / "metrics.jsonl").open("a") as file:
        file.write(row(13))
    assert library.refresh() == (["study/a"], [])
    assert library.table()[0].ood == 0.5
    shutil.rmtree(tmp_path / "study" / "a")
    assert library.refresh() == ([], ["study/a"])
    assert library.table() == []
    with pytest.raises(InputError, match="no such run"):
        library.curve("study/a")


def test_half_written_and_broken_files(finished: Path, tmp_path: Path) -> None:
    for name in "abcdefg":
        shutil.copytree(finished, tmp_path / name)
        without_copies(tmp_path / name)
    with (tmp_path / "a" / "metrics.jsonl").open("a") as file:
        file.write(row(20)[:-10])
    (tmp_path / "b" / "config.toml").write_bytes(b"\xff\x00 nonsense")
    (tmp_path / "c" / "status.json").write_text("{")
    wrong = json.loads(row(2)) | {"ood": {"r2": "high"}}
    (tmp_path / "d" / "metrics.jsonl").write_text(f"not json\n{row(1)}[]\n{json.dumps(wrong)}\n{row(3)}")
    (tmp_path / "e" / "status.json").write_text(status("failed", 3, error="<b>disk</b>"))
    (tmp_path / "f" / "metrics.jsonl").unlink()
    lacking = {name: value for name, value in json.loads(row(2)).items() if name != "control"}
    (tmp_path / "g" / "metrics.jsonl").write_text(f"{row(1)}{json.dumps(lacking)}\n")
    library = Library(tmp_path)
    assert len(library.refresh().changed) == 7
    runs = shown(library)
    assert runs["a"].step == 12, "the last whole row"
    assert runs["b"].state == "unreadable"
    assert runs["b"].error.startswith("config.toml: ")
    assert runs["c"].state == "unknown"
    assert runs["d"].measured == 3
    assert [(point.step, point.ood) for point in library.curve("d")] == [(1, 0.5), (3, 0.5)]
    assert runs["e"].error == "<b>disk</b>"
    assert library.curve("f") == []
    assert (runs["g"].measured, runs["g"].error) == (None, "metrics.jsonl has no row that can be read")
    assert [point.step for point in library.curve("g")] == [1]


def test_a_run_whose_process_has_died(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    process = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    library = Library(tmp_path)
    for pid, host, state in [
        (os.getpid(), socket.gethostname(), "running"),
        (int(process.stdout), socket.gethostname(), "killed"),
        (int(process.stdout), "elsewhere", "running"),
    ]:
        (tmp_path / "run" / "lock").write_text(f"process {pid} on {host}\n")
        (tmp_path / "run" / "status.json").write_text(status("running", pid))
        assert shown(library)["run"].state == state


HOSTILE = {
    "deep": b"[" * 100_000,
    "deeper": b'{"step": 1, "a": ' + b"[" * 5_000 + b"]" * 5_000 + b"}\n",
    "infinite": b'{"state": "done", "step": 1e999, "num_steps": 1, "loss": 1e999, "ood": {"r2": NaN}}\n',
    "huge": b'{"state": "done", "num_steps": 1, "step": ' + b"9" * 5_000 + b"}\n",
    "wrong": b'{"state": ["done"], "step": {"a": 1}, "num_steps": 1, "ood": [1], "probe": 3}\n',
    "binary": bytes(range(256)) * 40,
    "long": b'{"state": "failed", "step": 1, "num_steps": 1, "error": "' + b"y" * 900_000 + b'"}\n',
    "empty": b"",
}


@pytest.mark.parametrize("file", ["config.toml", "status.json", "metrics.jsonl"])
def test_whatever_is_in_a_file_the_others_are_shown(finished: Path, tmp_path: Path, file: str) -> None:
    shutil.copytree(finished, tmp_path / "good")
    for name, content in HOSTILE.items():
        shutil.copytree(finished, tmp_path / name)
        without_copies(tmp_path / name)
        (tmp_path / name / file).write_bytes(content)
    for name in ("fifo", "directory", "link"):
        shutil.copytree(finished, tmp_path / name)
        without_copies(tmp_path / name)
        (tmp_path / name / file).unlink()
    os.mkfifo(tmp_path / "fifo" / file)
    (tmp_path / "directory" / file).mkdir()
    (tmp_path / "link" / file).symlink_to(finished / file)
    library = Library(tmp_path)
    runs = shown(library)
    assert set(runs) == {"good", "fifo", "directory", "link", *HOSTILE}
    marked = {"config.toml": "unreadable", "status.json": "unknown", "metrics.jsonl": "done"}[file]
    for name, run in runs.items():
        library.curve(name)
        assert len(encode(run)) < 2_000
        if name not in ("good", "long", "empty"):  # an empty configuration is the default
            is_file = name in HOSTILE or file == "status.json"
            assert run.state == (marked if is_file else "unreadable"), name
    assert runs["good"].state == "done"
    if file == "status.json":
        assert (runs["long"].state, runs["long"].error) == ("failed", "y" * 300)
    if file == "metrics.jsonl":
        assert runs["link"].measured is None, "a link is not followed"
        assert all(
            runs[name].error == "metrics.jsonl has no row that can be read" for name in HOSTILE.keys() - {"empty"}
        )


@pytest.mark.parametrize("file", ["model.safetensors", "checkpoints", "lock"])
@pytest.mark.parametrize("target", ["x" * 300, "/no/such/place", "."])
def test_links_to_anywhere(finished: Path, tmp_path: Path, file: str, target: str) -> None:
    """Links to a name that is too long, to a missing file, to itself: the run is shown without that file."""
    for name in ("bad", "good"):
        shutil.copytree(finished, tmp_path / name)
        (tmp_path / name / "status.json").write_text(status("running", 1))
    place = tmp_path / "bad" / file
    shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    place.symlink_to(target)
    runs = shown(Library(tmp_path))
    assert {name: run.model for name, run in runs.items()} == dict.fromkeys(("bad", "good"), runs["good"].model)
    assert (runs["bad"].playable, runs["good"].playable) == (file != "checkpoints", True)


def test_an_unforeseen_error_harms_one_run(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bad", "good"):
        shutil.copytree(finished, tmp_path / name)

    def read(source: RunSource) -> MetricsRow | None:
        if "bad" in source.path.parts:
            raise ZeroDivisionError
        return last_row(source)

    monkeypatch.setattr(run_summary, "last_row", read)
    states = {name: (run.state, run.error) for name, run in shown(Library(tmp_path)).items()}
    assert states == {"bad": ("unreadable", "ZeroDivisionError"), "good": ("done", None)}


def test_a_run_that_the_disk_does_not_give(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        shutil.copytree(finished, tmp_path / name)

    def read(source: RunSource) -> Config:
        if source.path.name == "a":
            raise OSError(errno.EIO, "Input/output error")
        return read_config(source)

    monkeypatch.setattr(run_summary, "read_config", read)
    assert [run.state for run in shown(Library(tmp_path)).values()] == ["unreadable", "done"]


def test_a_name_of_any_bytes(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(os.fsencode(finished), os.fsencode(tmp_path) + b"/run\xff")
    library = Library(tmp_path)
    assert library.refresh() == (["run\\xff"], [])
    assert library.curve("run\\xff")
    assert json.dumps(library.table()[0].name, ensure_ascii=False).encode()


def test_difference(tmp_path: Path) -> None:
    finish(tmp_path / "a")
    finish(tmp_path / "b", small_config(seed=1, model={"causal": True}))
    library = Library(tmp_path)
    library.refresh()
    assert library.difference("a", "b") == {"model.causal": ("false", "true"), "seed": ("0", "1")}
    without_copies(tmp_path / "b")
    (tmp_path / "b" / "config.toml").write_text("seed = ")
    library.refresh()
    with pytest.raises(InputError, match=r"run = 'b': cannot be compared: config.toml"):
        library.difference("a", "b")


def test_sweeps(tmp_path: Path, finished: Path) -> None:
    """The best so far is the configuration with the best mean selection score, not the best single run."""
    chosen = {"a-seed0": 0.5, "a-seed1": 0.7, "b-seed0": 0.9, "b-seed1": 0.1, "c-seed0": 0.95}
    for name, r2 in chosen.items():
        shutil.copytree(finished, tmp_path / "sweep" / name)
        (tmp_path / "sweep" / name / SELECTION).write_text(selection(12, select=r2, report=1 - r2))
    lines = [SweepLine(name, name[0], int(name[-1]), {}, 12) for name in [*chosen, "c-seed1"]]
    (tmp_path / "sweep" / "sweep.jsonl").write_text("".join(f"{encode(line)}\n" for line in lines))
    library = Library(tmp_path)
    library.refresh()
    (sweep,) = library.sweeps()
    assert (sweep.name, sweep.runs, sweep.states) == ("sweep", 6, {"done": 5, "waiting": 1})
    assert sweep.best == (pytest.approx(0.6), "a"), "c is not done"
    selected = tmp_path / "sweep" / "a-seed0" / SELECTION
    for text in ("[" * 65_000, selection(3, select=1.0, report=1.0)):
        selected.write_text(text)
        assert library.refresh() == (["sweep/a-seed0"], [])
        assert library.sweeps()[0].best == (pytest.approx(0.5), "b"), "damaged, or of another step"
    selected.unlink()
    assert library.refresh() == (["sweep/a-seed0"], []), "the news tell when it appears and disappears"
    (tmp_path / "sweep" / "sweep.jsonl").write_text("{")
    assert library.sweeps()[0].error.startswith(
        "sweep = 'sweep': not the directory of a sweep: sweep.jsonl cannot be read"
    )


def test_seeds_of_one_configuration(tmp_path: Path) -> None:
    finish(tmp_path / "a")
    finish(tmp_path / "b", small_config(seed=1))
    finish(tmp_path / "c", small_config(seed=1, model={"causal": True}))
    one, same, other = (run.configuration for run in shown(Library(tmp_path)).values())
    assert one == same != other


def test_columns_are_the_fields_that_differ(finished: Path, tmp_path: Path) -> None:
    """The seed has a column of its own. A field that no run of a model varies is none."""
    for name, old, new in (
        ("a", "", ""),
        ("b", "learning_rate = 0.001", "learning_rate = 0.5"),
        ("c", "seed = 0", "seed = 7"),
    ):
        shutil.copytree(finished, tmp_path / "study" / name)
        without_copies(tmp_path / "study" / name)
        config = tmp_path / "study" / name / "config.toml"
        assert old in config.read_text()
        config.write_text(config.read_text().replace(old, new))
    library = Library(tmp_path)
    library.refresh()
    found = library.columns("study")
    assert found.fields == ("optimizer.learning_rate",)
    assert found.values == {"study/a": ("0.001",), "study/b": ("0.5",), "study/c": ("0.001",)}
    assert library.columns("none").values == {}


def test_what_the_explorer_does_not_show(finished: Path, tmp_path: Path) -> None:
    """Runs whose models can be loaded, but whose configurations tell that the explorer would refuse them."""
    shutil.copytree(finished, tmp_path / "plain")
    finish(tmp_path / "vectors", small_config(task={"output_dim": 2}))
    finish(tmp_path / "informed", small_config(task={"input_dim": 6}, model={"given_latent": True}))
    library = Library(tmp_path)
    library.refresh()
    runs = shown(library)
    assert all(run.playable for run in runs.values())
    assert runs["plain"].not_explored is None
    assert "its labels are vectors (task.output_dim = 2)" in (runs["vectors"].not_explored or "")
    assert "is given the true latent" in (runs["informed"].not_explored or "")
    for name in ("vectors", "informed"):
        with pytest.raises(InputError, match=re.escape(str(runs[name].not_explored))):
            load_explored(tmp_path / name)


def test_the_novel_part_is_that_of_the_scorecard(tmp_path: Path) -> None:
    """The rows of these runs have none. An edited scorecard, and one of an earlier step, are not shown."""
    with zipfile.ZipFile(ROOT / "evidence/paper/seed0.zip") as archive:
        for name in archive.namelist():
            if name.startswith("transformer-connected+-seed0/"):
                archive.extract(name, tmp_path)
    (name,) = (path.name for path in tmp_path.iterdir())
    library, card = Library(tmp_path), tmp_path / name / "scorecard.json"
    measured = json.loads(card.read_text())
    r2 = measured["novel"]["ood"]["r2"]
    assert shown(library)[name].novel == r2
    card.write_text(card.read_text().replace(str(r2), str(r2 / 2)))
    assert shown(library)[name].novel is None
    del measured["sha256"], measured["sources"]  # as written before files were sealed
    card.write_text(json.dumps(measured))
    assert shown(library)[name].novel == r2
    card.write_text(json.dumps(measured | {"step": measured["step"] - 1}))
    assert shown(library)[name].novel is None
    for content in HOSTILE.values():
        card.write_bytes(content)
        assert (shown(library)[name].novel, shown(library)[name].state) == (None, "done")


def test_the_page_of_a_run(finished: Path, tmp_path: Path) -> None:
    """Its last row, beside the references; and what cannot be read is a line of the log."""
    shutil.copytree(finished, tmp_path / "run")
    library = Library(tmp_path)
    library.refresh()
    detail = read_detail(library.find("run"))
    row = last_row(library.find("run").source)
    assert row is not None
    assert row.ood is not None
    assert detail.scores[0].rows[0][1:3] == (row.in_dist.r2, row.ood.r2)
    assert detail.fields["optimizer.num_steps"] == str(row.step)
    assert any("started" in line for line in detail.log)
    without_copies(tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").write_text("[]\n")
    (tmp_path / "run" / "env.json").write_text("{")
    library.refresh()
    broken = read_detail(library.find("run"))
    assert (broken.scores, len(broken.log)) == ((), 1)
