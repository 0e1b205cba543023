"""Trackers get every row once, and a tracker that fails harms nothing."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recombine.cli.main import main
from recombine.config.preset import preset_config
from recombine.errors import InputError
from recombine.terminal.track import Tracker
from tests.reliability.small_run import finish


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    finish(path := tmp_path_factory.mktemp("tracked") / "run")
    return path


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_finished_run_is_sent(name: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent, settings, ended = [], {}, []
    fake = SimpleNamespace(
        init=lambda **given: settings.update(given),
        log=lambda values, step: sent.append((step, values["r2/ood"])),
        finish=lambda: ended.append(True),
    )
    monkeypatch.setitem(sys.modules, name, fake)
    assert main(["train", "--out", str(run), "--track", name]) == 0
    assert sent == [(row["step"], row["ood"]["r2"]) for row in rows(run)]
    assert settings["config"]["model"]["kind"] == "transformer"
    assert ended


def test_tensorboard_files(run: Path) -> None:
    assert main(["train", "--out", str(run), "--track", "tensorboard"]) == 0
    (events,) = (run / "tensorboard").glob("events.*")
    data = events.read_bytes()
    assert data.count(b"r2/ood") >= len(rows(run))


def test_a_tracker_that_fails_harms_nothing(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (run / "metrics.jsonl").read_bytes()

    def fail(*_: object, **__: object) -> None:
        raise ConnectionError("no network\nand more")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **_: None, log=fail, finish=fail))
    assert main(["train", "--out", str(run), "--track", "wandb"]) == 0
    assert capsys.readouterr().err.count("no network") == 1
    assert (run / "metrics.jsonl").read_bytes() == before


def test_one_that_is_not_installed_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(InputError, match=r"recombine\[trackio\]"):
        Tracker("trackio", tmp_path, preset_config("smoke", "transformer"), lambda text: None)
    assert main(["train", "--out", str(tmp_path / "new"), "--track", "trackio"]) == 2
    assert not (tmp_path / "new").exists()
