"""A user without a home directory: no HOME, and no entry in the list of users."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recombine.run.home import cache_directory, settle_home

HOMELESS = """
import os, pwd, sys
os.environ.pop("HOME", None)
def unknown(number): raise KeyError(number)
pwd.getpwuid = unknown
from recombine.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "arguments",
    [["task", "show", "--figure", "a.svg"], ["task", "sample", "--out", "a.npz", "--episodes", "3", "--length", "4"]],
    ids=lambda words: " ".join(words[:3]),
)
def test_commands(arguments: list[str], tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", HOMELESS, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    assert len(list(tmp_path.iterdir())) == 1


def test_nothing_is_kept_where_there_is_no_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unknown(_: object) -> None:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", unknown)
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    settle_home()
    assert cache_directory() is None
    with pytest.raises(NotADirectoryError):
        Path.home().joinpath("anything").mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "recombine"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME")
    settle_home()
    assert os.environ["HOME"] == str(tmp_path)
    assert cache_directory() == tmp_path / ".cache" / "recombine"
