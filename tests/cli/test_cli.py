"""The command line for users: a mistake gives one line on stderr and exit code 2, and nothing is written."""

import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from recombine import __version__
from recombine.cli.main import COMMANDS, main
from recombine.config.schema import field_names
from recombine.terminal.help import wrap

BAD = [
    ["train", "--set"],
    ["train", "--set", "--seed", "1"],
    ["task", "show", "--support", "conected"],
    ["task", "show", "--support", ""],
    ["task", "show", "--support", "110,011,110"],
    ["task", "show", "--support", "110,01"],
    ["task", "show", "--support", "110,012"],
    ["task", "show", "--support", "110,000"],
    ["task", "show", "--support", "110,100"],
    ["task", "show", "--support", "110,011", "--held-out", "110"],
    ["task", "show", "--figure", "a.gif"],
    ["task", "show", "--figure", "missing/a.png"],
    ["task", "design", "--size", "0"],
    ["task", "design", "--size", "3", "--modules", "0"],
    ["task", "design", "--size", "3", "--modules", "9223372036854775808"],
    ["task", "design", "--size", "5", "--k", "7"],
    ["task", "design", "--size", "5", "--seed", "-1"],
    ["task", "sample", "--out", "a.npz", "--episodes", "0"],
    ["task", "sample", "--out", "a.npz", "--episodes", "nan"],
    ["task", "sample", "--out", "a.npz", "--episodes", "9223372036854775808"],
    ["task", "sample", "--out", "a.npz", "--episodes", "2000000000"],
    ["task", "sample", "--out", "a.npz", "--length", "1"],
    ["task", "sample", "--out", "a.npz", "--length", "1e308"],
    ["task", "sample", "--out", "a.npz", "--input-dim", "-4"],
    ["task", "sample", "--out", "a.npz", "--seed", "4294967296"],
    ["task", "sample", "--out", "a.npz", "--split", "test"],
    ["task", "sample", "--out", "a.npz", "--support", "2-hot", "--split", "ood"],
    ["task", "sample", "--out", "a.txt"],
    ["task", "sample", "--out", "missing/a.npz"],
    ["task", "sample", "--out", "directory.npz"],
    ["task", "sample", "--out", "config.toml/a.npz"],
    ["task", "sample"],
    ["task"],
    ["task", "smaple"],
    ["construct", "--modules", "0"],
    ["construct", "--trials", "65536"],
    ["construct", "--trials", "1000000000"],
    ["reproduce", "--preset", "smal"],
    ["reproduce", "--seed", "-1"],
    ["reproduce", "--config", "missing.toml"],
    ["reproduce", "--config", "directory.npz"],
    ["reproduce", "--config", "config.toml"],
    ["reproduce", "--config", "broken.toml"],
    ["reproduce", "--config", "kind.toml"],
    ["reproduce", "--config", "own.toml"],
    ["reproduce", "--config", "own_kind.toml"],
    ["reproduce", "--config", "shared.toml"],
    ["reproduce", "--out", "config.toml"],
    ["reproduce", "--threads", "0"],
    ["train", "--preset", "smal"],
    ["train", "--model", "mlp"],
    ["train", "--config", "config.toml"],
    ["train", "--config", "kind.toml", "--model", "hypertransformer"],
    ["train", "--set", "model.num_layer=3"],
    ["train", "--set", "model.num_layers"],
    ["train", "--set", "model.num_layers=0"],
    ["train", "--set", "model.kind=mlp"],
    ["train", "--set", "seed=1", "seed=2"],
    ["train", "--set", "model=1", "model.causal=true"],
    ["train", "--set", "optimizer.learning_rate=nan"],
    ["train", "--set", "optimizer.learning_rate=1e308"],
    ["train", "--set", "task.support=110,000"],
    ["train", "--set", "compute.precision=float16"],
    ["train", "--seed", "4294967296"],
    ["train", "--out", "config.toml"],
    ["train", "--out", "directory.npz"],
    ["train", "--out", "config.toml/run"],
    ["train", "--threads", "0"],
    ["train", "--devices", "0"],
    ["train", "--devices", "5000"],
    ["train", "--save-every", "-1"],
    ["train", "--save-every", "nan"],
    ["train", "--stop-at", "-1"],
    ["task", "show", "--held-out", ""],
    ["task", "show", "--support", "2-hot:99999999999999999999"],
    ["task", "show", "--support", "directory.npz"],
    ["--nonsense"],
    [],
]


@pytest.mark.parametrize("arguments", BAD, ids=" ".join)
def test_mistakes_get_one_line(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "directory.npz").mkdir()
    (tmp_path / "directory.npz" / "other").touch()
    (tmp_path / "config.toml").write_text("[model]\nnum_heads = 3\n")
    (tmp_path / "broken.toml").write_text("[model")
    (tmp_path / "kind.toml").write_text('[model]\nkind = "transformer"\n')
    (tmp_path / "own_kind.toml").write_text('[hypertransformer.model]\nkind = "transformer"\n')
    (tmp_path / "own.toml").write_text("transformer = 3\n")
    (tmp_path / "shared.toml").write_text("[transformer.task]\nepisode_length = 4\n")
    before = sorted(tmp_path.rglob("*"))
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("recombine: ")
    assert captured.err.count("\n") == 1
    assert len(captured.err) > 20
    assert not re.search("[│╭╰─]|---", captured.err)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["reproduce", "--preset", "x"], "--preset = 'x': one of smoke, quick, paper (see recombine reproduce --help)"),
        (["train", "--preset", "smal"], "--preset = 'smal': one of paper, quick, smoke (see recombine train --help)"),
        (["train", "--threads", "x"], "--threads = 'x': an integer (see recombine train --help)"),
        (["train", "--mdoel", "x"], "no such option: --mdoel; did you mean --model? (see recombine train --help)"),
        (
            ["task", "design", "--modules", "3", "--size", "2", "--disconnected"],
            "modules = 3: two separate groups of 2-hot masks need at least 4 modules",
        ),
    ],
)
def test_what_a_mistake_is_called(arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the field, its value and what would be right."""
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"recombine: {line}\n"


@pytest.mark.parametrize(
    "arguments", [["--help"], ["task", "--help"], ["task", "sample", "-h"], ["reproduce", "-h"], ["train", "-h"]]
)
def test_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(arguments)
    assert not leaving.value.code
    captured = capsys.readouterr()
    assert "usage: recombine" in captured.out
    assert captured.err == ""


@pytest.mark.parametrize("width", [40, 80])
@pytest.mark.parametrize("arguments", [["--help"], ["task", "show", "--help"], ["train", "--help"]], ids=" ".join)
def test_help_is_as_wide_as_the_terminal(
    arguments: list[str], width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    with pytest.raises(SystemExit):
        main(arguments)
    assert max(map(len, capsys.readouterr().out.splitlines())) == width


def test_colours_take_no_room() -> None:
    bold = "\x1b[1musage:\x1b[0m one two\n"
    assert wrap(bold, 15) == bold
    assert wrap(bold, 13) == "\x1b[1musage:\x1b[0m one\ntwo\n"


EVERY_COMMAND = [[name, *words] for name in COMMANDS for words in ([], *([word] for word in COMMANDS[name]))]


@pytest.mark.parametrize("command", EVERY_COMMAND, ids=" ".join)
def test_help_shows_no_default_that_is_none(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--help" in text, "it is the help of a command that exists"
    assert not re.search(r"\(default: (None|False|)\)", text)
    if command == ["train"]:
        assert all(name in text for names in field_names().values() for name in names)


def test_print_config_is_what_config_reads_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes = ["--set", "model.num_layers=3", "task.support=110,011"]
    assert main(["train", "--preset", "smoke", "--model", "hypertransformer", *changes, "--print-config"]) == 0
    (path := tmp_path / "a.toml").write_text(text := capsys.readouterr().out)
    assert main(["train", "--config", str(path), "--print-config"]) == 0
    assert capsys.readouterr().out == text
    assert "num_layers = 3" in text


def test_version_as_a_module_and_as_a_script() -> None:
    script = Path(sys.executable).with_name("recombine")
    for command in ([sys.executable, "-m", "recombine"], [str(script)]):
        result = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
        assert re.fullmatch(r"recombine \d+\.\d+\.\d+\n", result.stdout)


def test_a_design_feeds_a_support(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["task", "design", "--size", "7", "--modules", "6", "--disconnected", "--json"]) == 0
    text = capsys.readouterr().out
    path = tmp_path / "mine.json"
    path.write_text(text)
    assert main(["task", "show", "--support", str(path), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again == json.loads(text)
    assert not again["connected"]
    assert main(["task", "sample", "--support", str(path), "--split", "ood", "--episodes", "3", "--length", "4",
                 "--out", str(tmp_path / "a.npz")]) == 0  # fmt: skip
    with np.load(tmp_path / "a.npz") as data:
        assert data["masks"].tolist() == again["held_out"]


def test_the_table_and_the_drawing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["task", "show", "--support", "disconnected", "--figure", str(tmp_path / "a.svg")]) == 0
    text = capsys.readouterr().out
    assert "disconnected: 2 components" in text
    assert text.count("trained") == 6
    assert text.count("held out") == 9
    assert (tmp_path / "a.svg").exists()


def test_train_resumes_and_prints_its_scores(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    changes = ["measure.episodes=32", "task.support=connected", "model.num_layers=1", "optimizer.num_steps=12"]
    out = tmp_path / ("a-long-name-" * 8)
    arguments = ["train", "--model", "hypertransformer", "--preset", "smoke", "--out", str(out)]
    assert main([*arguments, "--stop-at", "6", "--set", *changes]) == 0
    captured = capsys.readouterr()
    assert f"{out}: step 6 of 12" in captured.out
    assert "the same command without --stop-at resumes" in captured.out
    assert main([*arguments, "--json", "--set", *changes]) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert "resuming at step 6" in captured.err
    assert (result["step"], result["run"]) == (12, str(out))
    assert result["config"]["task"]["support"]["name"] == "connected"
    assert set(result["scores"]) == {"in_dist", "ood", "control", "control_modules", "probe", "novel"}
    assert main(["train", "--out", str(out)]) == 0, "with its own configuration"
    assert f"{out} is already at step 12" in capsys.readouterr().err
    assert main(["train", "--out", str(out), "--set", "model.num_layers=2"]) == 2
    captured = capsys.readouterr()
    assert "made with other settings: model.num_layers: 1 → 2 (" in captured.err, "one difference, and no others"
    for resume in ([], ["--resume-anyway"]):
        assert main(["train", "--out", str(out), "--model", "transformer", *resume]) == 2
        error = capsys.readouterr().err
        assert "hypertransformer" in error
        assert "→" not in error, "the model alone, not each of its fields"
    assert main([*arguments, "--set", *changes[1:]]) == 2
    captured = capsys.readouterr()
    assert "measure.episodes: 32 → 64" in captured.err
    assert captured.err.count("\n") == 1


def test_the_default_run_directory_is_named_after_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["train", "--preset", "smoke", "--seed", "3", "--stop-at", "1", "--set", "measure.episodes=8"]
    assert main(arguments) == 0
    assert (tmp_path / "runs" / "smoke-transformer-seed3" / "config.toml").is_file()


def test_a_reader_that_leaves_is_no_error() -> None:
    command = [sys.executable, "-m", "recombine", "task", "show", "--support", "2-hot:40", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "{\n"
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 0


def test_the_version_is_the_same_everywhere() -> None:
    citation, changes = (
        (Path(__file__).parents[2] / name).read_text(encoding="utf-8") for name in ("CITATION.cff", "CHANGELOG.md")
    )
    assert f"version: {__version__}\n" in citation
    assert re.findall(r"^## \[(.+?)\]", changes, re.MULTILINE)[0] == __version__
    assert version("recombine") == __version__, "`make setup` installs it again"
