"""`recombine reproduce` from start to verdicts, in separate processes, as users run it."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recombine.cli.main import main
from tests.reliability.processes import children

TINY = """
[optimizer]
num_steps = 6
batch_size = 4
[measure]
episodes = 40
snapshots = 2
"""


CLAIMED = ("--panels", "A", "B", "C", "D")  # all that the claims are about


def command(out: Path, *more: str) -> list[str]:
    config = out.parent / "tiny.toml"
    config.write_text(TINY)
    return ["reproduce", "--preset", "smoke", "--config", str(config), "--out", str(out), *more]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict, str]:
    out = tmp_path_factory.mktemp("reproduce") / "out"
    process = subprocess.run(
        [sys.executable, "-m", "recombine", *command(out, "--json", "--workers", "1", *CLAIMED)],  # compiles once
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert process.returncode == 0, process.stderr
    return out, json.loads(process.stdout), process.stderr


def test_ends_with_a_verdict_on_every_claim_and_the_page(whole: tuple[Path, dict, str]) -> None:
    out, result, said = whole
    assert [verdict["number"] for verdict in result["verdicts"]] == [1, 2, 3, 4, 5, 6, 7]
    assert result["verdicts"][6]["state"] == "holds"
    assert all(part["mean"] is not None for verdict in result["verdicts"] for part in verdict["parts"])
    assert set(result["runs"].values()) == {"done"}
    assert len(result["runs"]) == 6
    assert Path(result["page"]).is_file()
    assert (out / "report" / "results.png").is_file()
    assert len(list((out / "references").glob("*.json"))) == 3, "once per support and seed, not per model"
    assert "done" in said


def test_a_second_time_nothing_is_trained(whole: tuple[Path, dict, str], capsys: pytest.CaptureFixture[str]) -> None:
    out, result, _ = whole
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert main(command(out, "--json", *CLAIMED)) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == result
    assert "started" not in captured.err
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_other_settings_in_the_same_place_are_refused(
    whole: tuple[Path, dict, str], capsys: pytest.CaptureFixture[str]
) -> None:
    out, *_ = whole
    arguments = command(out)
    (out.parent / "tiny.toml").write_text(TINY.replace("num_steps = 6", "num_steps = 7"))
    assert main(arguments) == 2
    assert "a run with other settings is there (optimizer.num_steps: 6 → 7)" in capsys.readouterr().err


def test_a_run_that_no_report_could_show_with_them_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused before training starts, not when the report is written."""
    out = tmp_path / "out"
    assert main(["train", "--preset", "smoke", "--stop-at", "0", "--out", str(out / "foreign")]) == 0
    capsys.readouterr()
    assert main(command(out)) == 2
    assert "do not belong together" in capsys.readouterr().err
    assert sorted(path.name for path in out.iterdir()) == ["foreign"]


def test_eval_of_a_run(whole: tuple[Path, dict, str], capsys: pytest.CaptureFixture[str]) -> None:
    out, *_ = whole
    assert main(["eval", str(out / "transformer-connected+-seed0"), "--json"]) == 0
    card = json.loads(capsys.readouterr().out)
    assert len(card["probe"]["ood"]) == 3
    assert set(card["ood"]["masks"]) == {"100100", "010010", "001001"}
    assert set(card["active_modules"]) == {"1", "2", "3", "4", "5", "6"}
    parts = {"in_dist", "ood", "control", "control_modules", "active_modules", "novel"}
    assert set(card["references"]["oracle"]) == parts
    assert {"share", "slope", "r2", "span_error"} <= card["novel"]["ood"].keys()
    assert card["references"]["known_latent"]["novel"]["ood"]["r2"] > 0.99
    assert [entry["point"] for entry in card["interventions"]["points"]] == [1, 2]
    assert card["modules"] is None
    assert main(["eval", str(out / "hypertransformer-connected+-seed0")]) == 0
    text = capsys.readouterr().out
    for words in (
        "by mask",
        "the novel part",
        "linearly decoded",
        "by active modules",
        "modules recovered",
        "latent replaced",
        "oracle",
    ):
        assert words in text


def test_a_run_that_cannot_be_written_to_is_examined_all_the_same(
    whole: tuple[Path, dict, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, *_ = whole
    run = out / "transformer-disconnected-seed0"
    card, refused = (run / "scorecard.json").read_bytes(), []

    def refuse(path: str | Path, flags: int, mode: int = 0o777, **more: int | None) -> int:
        if flags & os.O_CREAT:
            refused.append(path)
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(path, flags, mode, **more)

    opened = os.open
    (run / "scorecard.json").unlink()
    try:
        monkeypatch.setattr("recombine.files.os.open", refuse)
        assert main(["eval", str(run), "--json"]) == 0
    finally:
        monkeypatch.undo()
        (run / "scorecard.json").write_bytes(card)
    assert refused
    assert json.loads(capsys.readouterr().out)["active_modules"] == json.loads(card)["active_modules"]


def test_interrupted_it_leaves_no_process_and_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = command(out)
    (tmp_path / "tiny.toml").write_text(TINY.replace("num_steps = 6", "num_steps = 1000000"))
    for signum, code in ((signal.SIGTERM, 143), (signal.SIGKILL, -9)):
        process = subprocess.Popen(
            [sys.executable, "-m", "recombine", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        wait_until(lambda process=process: trains(out / "transformer-connected+-seed0", children(process.pid)))
        workers = children(process.pid)
        process.send_signal(signum)
        process.communicate(timeout=120)
        assert process.returncode == code
        wait_until(lambda workers=workers: not any(Path(f"/proc/{worker}").exists() for worker in workers))


def trains(run: Path, workers: list[int]) -> bool:
    """Whether one of the workers is executing the run."""
    try:
        status = json.loads((run / "status.json").read_text())
    except (OSError, ValueError):
        return False
    return status["state"] == "running" and status["process"] in workers


def wait_until(condition) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--seeds", "0"], "seeds = 0"),
        (["--workers", "0"], "workers = 0"),
        (["--seed", "-1"], "seed = -1"),
        (["--model", "no_such:Model"], "cannot be imported"),
        (["--out", os.devnull], "is a file"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--preset", "smoke", *arguments]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1


def test_a_dry_run_lists_the_runs(tmp_path: Path) -> None:
    arguments = command(tmp_path / "out", "--dry-run", "--json")
    process = subprocess.run(
        [sys.executable, "-m", "recombine", *arguments], capture_output=True, text=True, timeout=500
    )
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)
    assert len(result["runs"]) == 10
    assert all(row["seconds"] > 0 for row in result["runs"])
    assert not (tmp_path / "out").exists()
