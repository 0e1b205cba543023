"""What the server knows of a directory that grows, shrinks, and holds what is broken."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from recombine.errors import InputError
from recombine.serve.library import MOST_POINTS, Library, last_row
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
    assert shown["ood"] == json.loads(rows[-1])["ood"]["r2"]
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


def test_long_curves_are_thinned_and_end_at_the_end(tmp_path: Path, finished: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(row(step) for step in range(5_000)))
    library = Library(tmp_path)
    library.refresh()
    steps = library.curve("run")["steps"]
    assert len(steps) <= MOST_POINTS + 1
    assert (steps[0], steps[-1]) == (0, 4_999)
    assert last_row(tmp_path / "run" / "metrics.jsonl")["step"] == 4_999


def test_difference(tmp_path: Path) -> None:
    finish(tmp_path / "a")
    finish(tmp_path / "b", small_config(seed=1, model={"causal": True}))
    library = Library(tmp_path)
    library.refresh()
    assert library.difference("a", "b") == {"model.causal": ["false", "true"], "seed": ["0", "1"]}


def test_sweeps(tmp_path: Path, finished: Path) -> None:
    shutil.copytree(finished, tmp_path / "sweep" / "done")
    lines = [
        {"name": name, "configuration": name, "seed": 0, "point": {}, "num_steps": 12} for name in ("done", "later")
    ]
    (tmp_path / "sweep" / "sweep.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    library = Library(tmp_path)
    library.refresh()
    (sweep,) = library.sweeps()
    assert (sweep["name"], sweep["runs"], sweep["states"]) == ("sweep", 2, {"done": 1, "waiting": 1})
    assert sweep["best"][1] == "done"
    (tmp_path / "sweep" / "sweep.jsonl").write_text("{")
    assert "error" in library.sweeps()[0]
