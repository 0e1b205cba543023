"""Curves follow a file of metrics however it grows or is replaced, and keep a bounded number of its rows."""

import shutil
from pathlib import Path

import pytest

from recombine.serve.library import Library
from recombine.storage.source import DirectorySource
from recombine.storage.thinned_metrics import read_curve
from tests.reliability.small_run import finish, without_copies
from tests.serve.rows import row


def steps(directory: Path, most: int = 300) -> list[int]:
    return [point.step for point in read_curve(DirectorySource(directory), most)]


@pytest.mark.parametrize("rows", [0, 1, 2, 63, 64, 65, 500])
def test_a_curve_is_thinned(tmp_path: Path, rows: int) -> None:
    """Every 2ᵏ-th row, at most 64 of them, and the last."""
    (tmp_path / "config.toml").touch()
    (tmp_path / "metrics.jsonl").write_text("".join(row(step) for step in range(rows)))
    every = next(2**k for k in range(20) if 2**k * 64 >= rows)
    expected = sorted({*range(0, rows, every), *range(rows - 1, rows)} - {-1})
    assert steps(tmp_path, 64) == expected
    losses = [point.loss for point in read_curve(DirectorySource(tmp_path), 64)]
    assert losses == [float(f"{1.0 / (step + 1):.6g}") for step in expected]


def test_a_curve_of_another_file(tmp_path: Path) -> None:
    (tmp_path / "config.toml").touch()
    path = tmp_path / "metrics.jsonl"
    for written in ([0, 1, 2], [5, 6, 7], [5, 6], [5, 6, 7], []):
        path.write_text("".join(row(step) for step in written))
        assert steps(tmp_path) == written
    path.write_text(row(1) + row(2)[:-5])  # the last line is being written
    assert steps(tmp_path) == [1]
    path.unlink()
    assert steps(tmp_path) == []


def test_only_rows_that_a_checkpoint_has_are_shown(tmp_path: Path) -> None:
    finish(tmp_path / "run")
    before = steps(tmp_path / "run")
    metrics = tmp_path / "run" / "metrics.jsonl"
    text = metrics.read_text()
    for edited in (text + row(99), text.replace('"r2": ', '"r2": 1'), text[: len(text) // 2], ""):
        metrics.write_text(edited)
        assert steps(tmp_path / "run") == before


def test_long_metrics(tmp_path: Path) -> None:
    finish(tmp_path / "run")
    without_copies(tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(row(step) for step in range(5_000)))
    library = Library(tmp_path)
    library.refresh()
    assert library.table()[0].measured == 4_999
    for most in (300, 20, 300):
        found = [point.step for point in library.curve("run", most)]
        assert most / 2 <= len(found) <= most + 1
        assert (found[0], found[-1]) == (0, 4_999)


def test_a_run_that_was_replaced_has_another_curve(tmp_path: Path) -> None:
    """The library's curve follows the run's name, not the first file that had it."""
    finish(tmp_path / "run")
    library = Library(tmp_path)
    library.refresh()
    before = library.curve("run")
    shutil.move(tmp_path / "run", tmp_path / "other")
    shutil.copytree(tmp_path / "other", tmp_path / "run")
    without_copies(tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").write_text(row(3) + row(4))
    library.refresh()
    assert [point.step for point in library.curve("run")] == [3, 4]
    assert library.curve("other") == before
