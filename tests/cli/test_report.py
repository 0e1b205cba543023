"""`recombine report`: the output directory is checked before any run is read."""

from pathlib import Path

import pytest

from recombine.cli.main import main
from recombine.cli.report import default_report
from recombine.storage.archive import write_archive


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive with an unreadable run: reading it raises an error about its configuration."""
    write_archive(tmp_path / "x.zip", {"run/config.toml": b"["})
    return tmp_path / "x.zip"


def test_by_default_the_page_is_in_the_directory_or_beside_the_archive(archive: Path) -> None:
    assert default_report(archive) == archive.parent / "report"
    assert default_report(archive / "run") == archive.parent / "report"
    assert default_report(archive.parent) == archive.parent / "report"


@pytest.mark.parametrize("place", ["x.zip/report", "x.zip", "x.zip/a/b", "a\0b"])
def test_a_place_that_cannot_be_written_is_refused_before_a_run_is_read(
    archive: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(archive), "--out", str(archive.parent / place)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("recombine: out = ")
    assert error.count("\n") == 1
