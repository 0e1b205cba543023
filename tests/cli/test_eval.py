"""`recombine eval`: which run a path refers to, and the names of runs in the output."""

from pathlib import Path

import pytest

from recombine.cli.eval import _one_run
from recombine.cli.main import main
from recombine.storage.archive import write_archive


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with an archive of two runs in it and in a directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept").mkdir()
    for path in ("two.zip", "kept/two.zip"):
        write_archive(Path(path), {f"seed{seed}/config.toml": b"" for seed in (0, 1)})
    return tmp_path


@pytest.mark.parametrize(("path", "names"), [("two.zip", "seed0, seed1"), ("kept", "two.zip/seed0, two.zip/seed1")])
def test_an_archive_of_several_runs_is_one_line(
    place: Path, path: str, names: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error lists the names of the runs, for relative and absolute paths."""
    for given in (path, str(place / path)):
        assert main(["eval", given]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert names in error


def test_a_run_of_an_archive_goes_by_the_path_that_was_given(place: Path) -> None:
    assert _one_run(Path("two.zip/seed1")).path == Path("two.zip/seed1")
    assert _one_run(place / "two.zip" / "seed1").path == place / "two.zip" / "seed1"
