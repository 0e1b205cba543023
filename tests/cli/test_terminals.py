"""Terminals and paths as they come: narrow, coloured, without our characters, not UTF-8."""

import io
import json
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from recombine.cli.main import main
from tests.reliability.small_run import finish

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


COMMAND = [sys.executable, "-m", "recombine"]


def run(
    *arguments: str, stdout: int = subprocess.PIPE, stderr: int = subprocess.PIPE, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | environment
    return subprocess.run([*COMMAND, *arguments], stdout=stdout, stderr=stderr, env=env, timeout=120)


@pytest.mark.parametrize("columns", ["0", "1", "4", "5", "-3", "x", "1000000"])
@pytest.mark.parametrize("arguments", [["--help"], ["train", "-h"]], ids=" ".join)
def test_help_comes_to_an_end(
    arguments: list[str], columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    with pytest.raises(SystemExit) as leaving:
        main(arguments)
    assert not leaving.value.code
    assert "usage" in capsys.readouterr().out
    assert os.environ["COLUMNS"] == columns


@pytest.mark.parametrize("columns", [40, *(pytest.param(width, marks=pytest.mark.slow) for width in (3, 80))])
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["trian"], "trian"),
        (["train", "--nonsense"], "--nonsense"),
        (["train", "--seed"], "--seed"),
        (["train", "--preset", "big"], "'big': one of"),
        (["train", "--mdoel", "x"], "did you mean --model?"),
        (["train", "--preset", "smal"], "--preset = 'smal'"),
        (["train", "--save-every", "x"], "--save-every = 'x'"),
        (["reproduce", "--worker", "3"], "--workers?"),
        (["task", "---x"], "---x"),
        (["task"], "show, design, sample"),
        (["sweep", "results"], "PATH"),
        (["train", "--set", "num_steps=3"], "optimizer.num_steps"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_usage_error_at_a_real_terminal(arguments: list[str], named: str, columns: int) -> None:
    leader, follower = pty.openpty()
    try:
        size = [shutil.which("stty") or "stty", "cols", str(columns)]
        subprocess.run(size, stdin=follower, check=True)
        result = run(*arguments, stdout=follower, stderr=follower, TERM="xterm-256color")
        line = os.read(leader, 65536).decode().replace("\r\n", "\n")
    finally:
        os.close(leader)
        os.close(follower)
    assert result.returncode == 2
    assert line.count("\n") == 1
    assert named in line
    assert not re.search("[│╭╰─\x1b]", line)
    assert len(line) < 300


def test_what_a_value_holds_does_not_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A key of a file may be a sequence that clears the screen."""
    path = tmp_path / "a.toml"
    path.write_text('"\\u001b[2J\\u0007" = 1\n')
    assert main(["train", "--config", str(path)]) == 2
    line = capsys.readouterr().err
    assert "\\x1b[2J" in line
    assert line[:-1].isprintable()


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose directory has a name that is not UTF-8."""
    place = tmp_path_factory.mktemp("named")
    finish(place / "plain")
    return (place / "plain").rename(place / os.fsdecode(b"bad\xff"))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["export", "RUN", "--out", "copy"],
        ["export", "RUN", "--out", "copy.zip"],
        ["task", "show"],
        ["train", "--out", "NEW"],
        ["reproduce", "--out", "NEW"],
        ["report", "RUN", "--out", "NEW"],
        ["export", "RUN", "--out", "NEW"],
        ["task", "sample", "--out", "NEW.npz"],
        ["train", "--config", "NEW"],
        ["sweep", "--grid", "NEW"],
        ["serve", "NEW"],
        ["NEW"],
    ],
    ids=" ".join,
)
def test_characters_that_a_terminal_does_not_have(
    arguments: list[str], encoding: str, named: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _check_characters(arguments, encoding, named, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["report", "RUN", "--out", "report"], marks=pytest.mark.slow),
        pytest.param(["report", "RUN", "--out", "report", "--markdown"], marks=pytest.mark.slow),
        ["report", "RUN", "--out", "report", "--json"],
        ["eval", "RUN"],
    ],
    ids=" ".join,
)
def test_characters_that_no_terminal_may_have(
    arguments: list[str], named: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ASCII alone: a report takes seconds to draw."""
    _check_characters(arguments, "ascii", named, tmp_path, monkeypatch)


def _check_characters(
    arguments: list[str], encoding: str, named: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    streams = {}
    for name in ("stdout", "stderr"):
        streams[name] = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
        monkeypatch.setattr(sys, name, streams[name])
    words = {"RUN": str(named), "NEW": os.fsdecode(b"new\xff"), "NEW.npz": os.fsdecode(b"new\xff.npz")}
    status = main([words.get(word, word) for word in arguments])
    texts = {name: stream.buffer.getvalue().decode(encoding) for name, stream in streams.items()}  # pyright: ignore
    refused = arguments[0] == "export" or any(word.startswith("NEW") for word in arguments)
    assert status == (2 if refused else 0), texts
    if refused:
        assert texts["stderr"].count("\n") == 1
        assert not list(tmp_path.iterdir())
    elif "--json" in arguments:
        assert json.loads(texts["stdout"])["notes"] is not None


def test_help_in_a_locale_without_our_characters() -> None:
    for environment in ({"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        result = run("--help", **environment)
        assert (result.returncode, result.stderr) == (0, b"")
        assert result.stdout.isascii()


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["task", "show"]], ids=" ".join)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_under_the_output(arguments: list[str], unbuffered: str) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        result = run(*arguments, stdout=full, PYTHONUNBUFFERED=unbuffered)
    finally:
        os.close(full)
    assert result.returncode == 1
    assert result.stderr.count(b"\n") == 1
    assert b"standard output" in result.stderr


def test_streams_that_are_closed(tmp_path: Path) -> None:
    """The file that is written does not take the place of a stream: what is printed would go into it."""
    python = [sys.executable, "-m", "recombine", "task", "show", "--figure", str(tmp_path / "a.svg")]
    shell = f"exec {' '.join(python)} <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", shell], check=False).returncode == 0
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
