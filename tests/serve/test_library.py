"""What the server knows of a directory that grows, shrinks, and holds what is broken."""

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from recombine.config.schema import Config
from recombine.errors import InputError
from recombine.jobs.sweep import SELECTION, SELECTION_FORMAT
from recombine.run.directory import run_config
from recombine.serve import run_files
from recombine.serve.curve import Curve
from recombine.serve.library import Library
from tests.reliability.small_run import finish, small_config


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("finished") / "run"
    finish(path)
    return path


def row(step: int, **more) -> str:
    return (
        json.dumps({"step": step, "loss": 1.0 / (step + 1), "ood": {"r2": 0.5}, "in_dist": {"r2": 0.25}} | more) + "\n"
    )


def test_what_changes_is_said_once(finished: Path, tmp_path: Path) -> None:
    library = Library(tmp_path)
    assert library.refresh() == ([], [])
    shutil.copytree(finished, tmp_path / "study" / "a")
    assert library.refresh() == (["study/a"], [])
    assert library.refresh() == ([], [])
    (shown,) = library.table()
    rows = (finished / "metrics.jsonl").read_text().splitlines()
    assert shown["ood"] == pytest.approx(json.loads(rows[-1])["ood"]["r2"], rel=1e-5)
    assert (shown["state"], shown["step"], shown["study"]) == ("done", 12, "study")
    (tmp_path / "study" / "a" / "metrics.jsonl").open("a").close()
    with (tmp_path / "study" / "a" / "metrics.jsonl").open("a") as file:
        file.write(row(13))
    assert library.refresh() == (["study/a"], [])
    assert library.table()[0]["ood"] == 0.5
    shutil.rmtree(tmp_path / "study" / "a")
    assert library.refresh() == ([], ["study/a"])
    assert library.table() == []
    with pytest.raises(InputError, match="no such run"):
        library.curve("study/a")


def test_half_written_and_broken_files(finished: Path, tmp_path: Path) -> None:
    for name in "abcdef":
        shutil.copytree(finished, tmp_path / name)
    with (tmp_path / "a" / "metrics.jsonl").open("a") as file:
        file.write(row(20)[:-10])
    (tmp_path / "b" / "config.toml").write_bytes(b"\xff\x00 nonsense")
    (tmp_path / "c" / "status.json").write_text("{")
    (tmp_path / "d" / "metrics.jsonl").write_text("not json\n" + row(1) + "[]\n" + row(2, ood={"r2": "high"}))
    (tmp_path / "e" / "status.json").write_text(json.dumps({"state": "failed", "step": 3, "error": "<b>disk</b>"}))
    (tmp_path / "f" / "metrics.jsonl").unlink()
    library = Library(tmp_path)
    assert len(library.refresh()[0]) == 6
    shown = {run["name"]: run for run in library.table()}
    assert shown["a"]["step"] == 12, "the last whole row"
    assert shown["b"]["state"] == "unreadable"
    assert "config.toml" in shown["b"]["error"]
    assert shown["c"]["state"] == "unknown"
    assert library.curve("d")["steps"] == [1, 2]
    assert library.curve("d")["ood"] == [0.5, None]
    assert shown["e"]["error"] == "<b>disk</b>"
    assert library.curve("f")["steps"] == []


def test_a_run_whose_process_has_died(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    process = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    (tmp_path / "run" / "status.json").write_text(json.dumps({"state": "running", "step": 3}))
    library = Library(tmp_path)
    for pid, host, state in [
        (os.getpid(), socket.gethostname(), "running"),
        (int(process.stdout), socket.gethostname(), "killed"),
        (int(process.stdout), "elsewhere", "running"),
    ]:
        (tmp_path / "run" / "lock").write_text(f"process {pid} on {host}\n")
        (tmp_path / "run" / "status.json").write_text(json.dumps({"state": "running", "step": pid}))
        library.refresh()
        assert library.table()[0]["state"] == state


@pytest.mark.parametrize("rows", [0, 1, 2, 63, 64, 65, 500])
def test_a_curve_read_in_parts_is_the_curve(tmp_path: Path, rows: int) -> None:
    """Every 2ᵏ-th row, at most 64 of them, and the last; however the file has grown to what it is."""
    path, curve = tmp_path / "metrics.jsonl", Curve(tmp_path / "metrics.jsonl", 64)
    text = "".join(row(step) for step in range(rows))
    for end in (0, len(text) // 3, len(text) // 3 + 1, len(text)):
        path.write_text(path.read_text() + text[path.stat().st_size : end] if path.exists() else text[:end])
        curve.read_on()
    every = next(2**k for k in range(20) if 2**k * 64 >= rows)
    expected = sorted({*range(0, rows, every), *range(rows - 1, rows)} - {-1})
    assert curve.columns()["steps"] == expected
    assert curve.columns()["loss"] == [float(f"{1.0 / (step + 1):.6g}") for step in expected]


def test_a_curve_of_another_file(tmp_path: Path) -> None:
    path, curve = tmp_path / "metrics.jsonl", Curve(tmp_path / "metrics.jsonl")
    for steps in ([0, 1, 2], [5, 6, 7], [5, 6], [5, 6, 7], []):
        new = tmp_path / "new"
        new.write_text("".join(row(step, loss=1.0) for step in steps))
        new.replace(path)
        curve.read_on()
        assert curve.columns()["steps"] == steps
    path.write_text(row(1) + row(2))
    curve.read_on()
    path.write_text(row(1))  # the same file, cut
    curve.read_on()
    assert curve.columns()["steps"] == [1]
    path.unlink()
    curve.read_on()
    assert curve.columns()["steps"] == []


def test_long_metrics(tmp_path: Path, finished: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(row(step) for step in range(5_000)))
    library = Library(tmp_path)
    library.refresh()
    assert library.table()[0]["measured"] == 4_999
    for most in (300, 20, 300):
        steps = library.curve("run", most)["steps"]
        assert most / 2 <= len(steps) <= most + 1
        assert (steps[0], steps[-1]) == (0, 4_999)


HOSTILE = {
    "deep": b"[" * 100_000,
    "deeper": b'{"step": 1, "a": ' + b"[" * 5_000 + b"]" * 5_000 + b"}\n",
    "infinite": b'{"state": "done", "step": 1e999, "loss": 1e999, "ood": {"r2": NaN}}\n',
    "huge": b'{"state": "done", "step": ' + b"9" * 5_000 + b"}\n",
    "wrong": b'{"state": ["done"], "step": {"a": 1}, "ood": [1], "probe": 3}\n',
    "binary": bytes(range(256)) * 40,
    "long": b'{"state": "' + b"x" * 900_000 + b'", "step": 1, "error": "' + b"y" * 90_000 + b'"}\n',
    "empty": b"",
}


@pytest.mark.parametrize("file", ["config.toml", "status.json", "metrics.jsonl"])
def test_whatever_is_in_a_file_the_others_are_shown(finished: Path, tmp_path: Path, file: str) -> None:
    shutil.copytree(finished, tmp_path / "good")
    for name, content in HOSTILE.items():
        shutil.copytree(finished, tmp_path / name)
        (tmp_path / name / file).write_bytes(content)
    for name in ("fifo", "directory", "link"):
        shutil.copytree(finished, tmp_path / name)
        (tmp_path / name / file).unlink()
    os.mkfifo(tmp_path / "fifo" / file)
    (tmp_path / "directory" / file).mkdir()
    (tmp_path / "link" / file).symlink_to(finished / file)
    library = Library(tmp_path)
    library.refresh()
    shown = {run["name"]: run for run in library.table()}
    assert set(shown) == {"good", "fifo", "directory", "link", *HOSTILE}
    marked = {"config.toml": "unreadable", "status.json": "unknown", "metrics.jsonl": "done"}[file]
    for name, run in shown.items():
        library.curve(name)
        assert len(json.dumps(run, allow_nan=False)) < 2_000
        if name not in ("good", "long", "empty"):  # no configuration is one: the default
            assert run["state"] == marked, name
    assert shown["good"]["state"] == "done"
    if file == "metrics.jsonl":
        assert shown["link"]["measured"] is None, "a link is not followed"


@pytest.mark.parametrize("file", ["model.safetensors", "checkpoints", "lock"])
@pytest.mark.parametrize("target", ["x" * 300, "/no/such/place", "."])
def test_links_to_anywhere(finished: Path, tmp_path: Path, file: str, target: str) -> None:
    """Too long a name, one that is not there, or itself: the run is shown without it, and so are the others."""
    for name in ("bad", "good"):
        shutil.copytree(finished, tmp_path / name)
        (tmp_path / name / "status.json").write_text(json.dumps({"state": "running", "step": 1}))
    place = tmp_path / "bad" / file
    shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    place.symlink_to(target)
    library = Library(tmp_path)
    library.refresh()
    shown = {run["name"]: run for run in library.table()}
    assert {name: run["model"] for name, run in shown.items()} == dict.fromkeys(("bad", "good"), shown["good"]["model"])
    assert (shown["bad"]["playable"], shown["good"]["playable"]) == (file != "checkpoints", True)


def test_what_nobody_has_foreseen_harms_one_run(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bad", "good"):
        shutil.copytree(finished, tmp_path / name)
    real = run_files.last_row
    monkeypatch.setattr(run_files, "last_row", lambda path: 1 / 0 if "bad" in path.parts else real(path))
    library = Library(tmp_path)
    library.refresh()
    states = {run["name"]: (run["state"], run["error"]) for run in library.table()}
    assert states == {"bad": ("unreadable", "ZeroDivisionError"), "good": ("done", None)}


def test_a_run_that_the_disk_does_not_give(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        shutil.copytree(finished, tmp_path / name)

    def read(path: Path) -> Config:
        if path.name == "a":
            raise OSError(errno.EIO, "Input/output error")
        return run_config(path)

    monkeypatch.setattr(run_files, "run_config", read)
    library = Library(tmp_path)
    library.refresh()
    assert [run["state"] for run in library.table()] == ["unreadable", "done"]


def test_a_name_of_any_bytes(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(os.fsencode(finished), os.fsencode(tmp_path) + b"/run\xff")
    library = Library(tmp_path)
    assert library.refresh() == (["run\\xff"], [])
    assert library.curve("run\\xff")["steps"]
    json.dumps(library.table(), ensure_ascii=False).encode()


def test_difference(tmp_path: Path) -> None:
    finish(tmp_path / "a")
    finish(tmp_path / "b", small_config(seed=1, model={"causal": True}))
    library = Library(tmp_path)
    library.refresh()
    assert library.difference("a", "b") == {"model.causal": ["false", "true"], "seed": ["0", "1"]}
    (tmp_path / "b" / "config.toml").write_text("seed = ")
    library.refresh()
    with pytest.raises(InputError, match=r"run = 'b': cannot be compared: config.toml"):
        library.difference("a", "b")


def test_sweeps(tmp_path: Path, finished: Path) -> None:
    """The best so far is the best configuration by the mean of what a sweep selects by, not the best single run."""
    chosen = {"a-seed0": 0.5, "a-seed1": 0.7, "b-seed0": 0.9, "b-seed1": 0.1, "c-seed0": 0.95}
    for name, r2 in chosen.items():
        shutil.copytree(finished, tmp_path / "sweep" / name)
        found = {"format": SELECTION_FORMAT, "step": 12, "select": {"in_dist": {"r2": 1.0}, "ood": {"r2": r2}}}
        (tmp_path / "sweep" / name / SELECTION).write_text(json.dumps(found | {"report": {"ood": {"r2": 1 - r2}}}))
    lines = [
        {"name": name, "configuration": name[0], "seed": int(name[-1]), "point": {}, "num_steps": 12}
        for name in [*chosen, "c-seed1"]
    ]
    (tmp_path / "sweep" / "sweep.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    library = Library(tmp_path)
    library.refresh()
    (sweep,) = library.sweeps()
    assert (sweep["name"], sweep["runs"], sweep["states"]) == ("sweep", 6, {"done": 5, "waiting": 1})
    assert sweep["best"] == (pytest.approx(0.6), "a"), "c is not done"
    selected = tmp_path / "sweep" / "a-seed0" / SELECTION
    for text in ("[" * 65_000, '{"format": 1, "step": 3, "select": {"ood": {"r2": 1.0}}, "report": {}}'):
        selected.write_text(text)
        assert library.refresh() == (["sweep/a-seed0"], [])
        assert library.sweeps()[0]["best"] == (pytest.approx(0.5), "b"), "damaged, or of another step"
    selected.unlink()
    assert library.refresh() == (["sweep/a-seed0"], []), "it is told when it comes and goes"
    (tmp_path / "sweep" / "sweep.jsonl").write_text("{")
    assert "error" in library.sweeps()[0]


def test_seeds_of_one_configuration(tmp_path: Path) -> None:
    finish(tmp_path / "a")
    finish(tmp_path / "b", small_config(seed=1))
    finish(tmp_path / "c", small_config(seed=1, model={"causal": True}))
    library = Library(tmp_path)
    library.refresh()
    one, same, other = (run["configuration"] for run in library.table())
    assert one == same != other
