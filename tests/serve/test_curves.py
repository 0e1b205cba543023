"""Curves follow a file of metrics however it grows or is replaced, and keep a bounded number of its rows."""

import shutil
from pathlib import Path

import pytest

from recombine.serve.library import Library
from recombine.storage.curve import Curve
from recombine.storage.source import DirectorySource
from tests.reliability.small_run import finish
from tests.serve.rows import row


def steps(curve: Curve) -> list[int]:
    return [point.step for point in curve.points()]


@pytest.mark.parametrize("rows", [0, 1, 2, 63, 64, 65, 500])
def test_a_curve_read_in_parts_is_the_curve(tmp_path: Path, rows: int) -> None:
    """Every 2ᵏ-th row, at most 64 of them, and the last; however the file has grown to what it is."""
    path, curve = tmp_path / "metrics.jsonl", Curve(DirectorySource(tmp_path), 64)
    text = "".join(row(step) for step in range(rows))
    for end in (0, len(text) // 3, len(text) // 3 + 1, len(text)):
        path.write_text(path.read_text() + text[path.stat().st_size : end] if path.exists() else text[:end])
        curve.read_on()
    every = next(2**k for k in range(20) if 2**k * 64 >= rows)
    expected = sorted({*range(0, rows, every), *range(rows - 1, rows)} - {-1})
    assert steps(curve) == expected
    assert [point.loss for point in curve.points()] == [float(f"{1.0 / (step + 1):.6g}") for step in expected]


def test_a_curve_of_another_file(tmp_path: Path) -> None:
    path, curve = tmp_path / "metrics.jsonl", Curve(DirectorySource(tmp_path))
    for written in ([0, 1, 2], [5, 6, 7], [5, 6], [5, 6, 7], []):
        new = tmp_path / "new"
        new.write_text("".join(row(step) for step in written))
        new.replace(path)
        curve.read_on()
        assert steps(curve) == written
    path.write_text(row(1) + row(2))
    curve.read_on()
    path.write_text(row(1))  # the same file, cut
    curve.read_on()
    assert steps(curve) == [1]
    path.unlink()
    curve.read_on()
    assert steps(curve) == []


def test_long_metrics(tmp_path: Path) -> None:
    finish(tmp_path / "run")
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
    (tmp_path / "run" / "metrics.jsonl").write_text(row(3) + row(4))
    library.refresh()
    assert [point.step for point in library.curve("run")] == [3, 4]
    assert library.curve("other") == before
