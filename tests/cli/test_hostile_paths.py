"""A file that a command is told to read may be anything: it is refused in one line, and never read without end."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from recombine.cli.main import main

COMMANDS = [
    ["train", "--out", "new", "--config"],
    ["reproduce", "--out", "new", "--config"],
    ["sweep", "--out", "new", "--grid"],
    ["task", "show", "--support"],
    ["report"],
    ["eval"],
    ["sweep", "results"],
    ["serve"],
    ["export", "--out", "new"],
]
PATHS = ["/dev/zero", "pipe", "directory", "socket", "sparse", "link", "binary", "/proc/self/mem", "nul\0", "x" * 300]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("directory").mkdir()
    Path("binary").write_bytes(b"\xff\xfe\x00")
    with Path("sparse").open("wb") as file:
        file.truncate(5 << 30)
    Path("link").symlink_to("sparse")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        yield tmp_path


@pytest.mark.parametrize(
    ("arguments", "path"),
    [(words, path) for words in COMMANDS for path in PATHS if (words, path) != (["serve"], "directory")],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value[:20].replace("\0", "0"),
)
def test_what_is_no_file_of_ours(
    arguments: list[str], path: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(place.rglob("*"))
    assert main([*arguments, path]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert path[:20].replace("\0", "\\x00") in captured.err
    assert sorted(place.rglob("*")) == before


def test_a_link_to_a_configuration_is_read(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("real.toml").write_text("[model]\nnum_heads = 3\n")
    Path("link.toml").symlink_to("real.toml")
    assert main(["train", "--out", "new", "--config", "link.toml"]) == 2
    assert "model.num_heads = 3" in capsys.readouterr().err
