"""The run directory: its files are readable without Recombine, and unsuitable directories are refused."""

import json
import math
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from safetensors.numpy import load_file

import recombine.run.training
from recombine.config.preset import preset_config
from recombine.config.toml import override, read_config
from recombine.errors import InputError
from recombine.measure.predict import predict
from recombine.measure.r2 import score
from recombine.measure.snapshot import measure_parts
from recombine.model.weights import replace_arrays
from recombine.record.codec import plain
from recombine.record.score import Score
from recombine.record.seal import seal, unseal
from recombine.record.sweep import Selection, SelectionScores
from recombine.run.training import RunOptions, execute_run
from recombine.storage.reader import read_run
from recombine.storage.source import open_run
from recombine.task.evaluation import evaluation_episodes, evaluation_splits
from recombine.train.loop import NonFiniteLoss, train
from recombine.train.step import config_tasks, init_state
from tests.reliability.small_run import NUM_STEPS, finish, result, small_config


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "nested" / "run"
    finish(path)
    return path


def rows(path: Path, name: str) -> list[dict]:
    return [json.loads(line) for line in (path / name).read_text().splitlines()]


def test_its_files(done: Path) -> None:
    names = {path.name for path in done.iterdir()}
    assert names == {"config.toml", "metrics.jsonl", "timing.jsonl", "checkpoints", "env.json", "status.json", "lock"}
    config = tomllib.loads((done / "config.toml").read_text())
    assert config["optimizer"]["weight_decay"] == 0.1, "complete, with what was filled in"
    assert read_config(done / "config.toml", preset_config("paper", "transformer")) == small_config()
    status = json.loads((done / "status.json").read_text())
    assert (status["state"], status["step"], status["num_steps"]) == ("done", 12, 12)
    env = json.loads((done / "env.json").read_text())
    assert env["starts"][0]["identity"]["threads"] >= 1
    assert env["starts"][0]["command"][0] == "recombine"


def test_its_metrics(done: Path) -> None:
    """The scores are those of the plain model in the checkpoint, and the losses those of the steps in between."""
    found = rows(done, "metrics.jsonl")
    assert [row["step"] for row in found] == [0, 4, 8, 12]
    config = small_config()
    tasks = config_tasks(config)
    losses = np.concatenate([s.losses for s in train(config, tasks, init_state(config), 0, 12)])
    assert found[0]["loss"] is None
    for i, row in enumerate(found[1:]):
        np.testing.assert_allclose(row["loss"], np.mean(losses[4 * i : 4 * i + 4], dtype=float), rtol=1e-12)
    arrays = load_file(done / "checkpoints" / "step-000000012" / "state.safetensors")
    arrays.pop("losses")
    state = replace_arrays(init_state(config), arrays, "test")
    for split in evaluation_splits(config):
        _, episodes = evaluation_episodes(config, tasks.teacher, split)
        expected = plain(score(predict(state.model, episodes), episodes))
        for name, value in expected.items():
            np.testing.assert_allclose(found[-1][split][name], value, rtol=1e-4, atol=1e-5)


def test_its_timing(done: Path) -> None:
    found = rows(done, "timing.jsonl")
    assert [row["step"] for row in found] == [4, 8, 12]
    assert set(found[-1]["seconds"]) == {"start", "compile", "train", "measure", "save"}
    assert found[-1]["episodes_per_second"] == pytest.approx(2 * found[-1]["steps_per_second"])
    assert found[0]["seconds"]["compile"] > 0
    assert found[-1]["seconds"]["compile"] == 0
    assert found[-1]["peak_memory_bytes"] > 1e7
    assert all(row["processor_seconds"] > 0 for row in found)
    assert found[0]["processor_seconds"] > found[-1]["processor_seconds"]  # it compiles


def test_a_run_that_is_done_stays_as_it_is(done: Path) -> None:
    before = (done / "metrics.jsonl").read_bytes()
    *_, last = execute_run(small_config(), done)
    assert last.step == 12
    assert set(plain(last.row)) == {"step", "loss", "in_dist", "ood", "control", "control_modules", "probe", "novel"}
    assert (done / "metrics.jsonl").read_bytes() == before


def test_a_run_that_is_done_can_be_read_on_any_machine(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = recombine.run.training.identity(1)
    elsewhere = msgspec.structs.replace(here, device="another")
    monkeypatch.setattr(recombine.run.training, "identity", lambda *arguments: elsewhere)
    *_, last = execute_run(small_config(), done)
    assert last.step == 12


def test_an_episode_of_one_pair_and_a_query(tmp_path: Path) -> None:
    """A single label has no variance, so that one score has no value there."""
    config = small_config(task={"episode_length": 2})
    finish(tmp_path / "run", config)
    row = rows(tmp_path / "run", "metrics.jsonl")[-1]
    assert row["in_dist"]["r2_variance"] is None
    assert np.isfinite(row["in_dist"]["r2"])
    *_, last = execute_run(config, tmp_path / "run")
    assert plain(last.row) == row


def test_whoever_stops_reading_the_progress_loses_nothing(tmp_path: Path) -> None:
    reports = execute_run(small_config(), tmp_path / "run", RunOptions(save_every=1e9))
    step = next(report.step for report in reports if report.step > 0)
    reports.close()
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert (status["state"], status["step"]) == ("stopped", step)
    assert (tmp_path / "run" / "checkpoints" / f"step-{step:09d}").is_dir()


def test_a_torn_line_of_timing_is_dropped(tmp_path: Path) -> None:
    finish(tmp_path / "run", stop_at=4)
    timing = tmp_path / "run" / "timing.jsonl"
    timing.write_text(timing.read_text() + '{"step": 6, "sec')
    finish(tmp_path / "run")
    assert [row["step"] for row in rows(tmp_path / "run", "timing.jsonl")] == [4, 8, 12]


def test_divergence_keeps_the_last_finite_checkpoint(tmp_path: Path) -> None:
    config = small_config(optimizer={"learning_rate": 1e20})
    with pytest.raises(NonFiniteLoss, match=r"step \d+ was not taken"):
        finish(tmp_path / "run", config)
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["state"] == "failed"
    assert "was not taken" in status["error"]
    newest = max((tmp_path / "run" / "checkpoints").glob("step-*"))
    assert all(np.isfinite(array).all() for array in load_file(newest / "state.safetensors").values())
    with pytest.raises(NonFiniteLoss) as again:  # going on finds the same
        finish(tmp_path / "run", config)
    assert str(again.value) == status["error"]


def test_a_score_that_is_not_finite_ends_the_run_and_leaves_it_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON has no NaN, and a row with null in place of a score would make the whole run unreadable."""

    def broken(*arguments: Any) -> Iterator[tuple[str, Any]]:
        for name, part in measure_parts(*arguments):
            yield name, msgspec.structs.replace(part, r2=math.nan) if name == "control" else part

    finish(tmp_path / "run", stop_at=4)
    monkeypatch.setattr(recombine.run.training, "measure_parts", broken)
    with pytest.raises(ArithmeticError, match=r"control\.r2"):
        finish(tmp_path / "run")
    found = read_run(open_run(tmp_path / "run"))
    assert found.status.state == "failed"
    assert [row.step for row in found.rows] == [0, 4]
    monkeypatch.undo()
    finish(tmp_path / "run")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nothing_is_sealed_that_could_not_be_read(value: float) -> None:
    """A number that is not finite becomes None if the field allows it, and otherwise an error."""
    one = Score(0.5, 0.5, value, 0.1)
    scores = SelectionScores(in_dist=one)
    assert unseal(seal(Selection(1, 4, scores, scores), ""), Selection).value.select.in_dist == Score(
        0.5, 0.5, None, 0.1
    )
    scores = SelectionScores(in_dist=msgspec.structs.replace(one, mse=value))
    with pytest.raises(ArithmeticError, match="mse"):
        seal(Selection(1, 4, scores, scores), "")


@pytest.mark.parametrize("place", ["file", "other things", "below a file", "too long", "nul"])
def test_where_no_run_can_live(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("x")
    path = {
        "file": tmp_path / "file",
        "other things": tmp_path / "full",
        "below a file": tmp_path / "file" / "run",
        "too long": tmp_path / ("é" * 200),
        "nul": tmp_path / "a\0b",
    }[place]
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=r"^out = "):
        finish(path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_copy_without_its_lock_file_resumes(tmp_path: Path) -> None:
    finish(tmp_path / "whole")
    list(execute_run(small_config(), tmp_path / "half", RunOptions(save_every=0.0, stop_at=NUM_STEPS // 2)))
    (tmp_path / "half" / "lock").unlink()
    finish(tmp_path / "half")
    assert result(tmp_path / "half") == result(tmp_path / "whole")


def test_names_of_any_kind_and_empty_directories_will_do(tmp_path: Path) -> None:
    for name in ("ünïcödé 実験", "n" * 255, "[bold]x"):
        (tmp_path / name).mkdir()
        finish(tmp_path / name, stop_at=1)
        assert (tmp_path / name / "config.toml").exists()


def test_options_are_checked() -> None:
    for options in ({"save_every": -1.0}, {"save_every": float("nan")}, {"stop_at": -1}):
        with pytest.raises(InputError, match=next(iter(options))):
            RunOptions(**options)


def test_devices_must_divide_the_batch(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="devices = 0"):
        finish(tmp_path / "run", devices=0)
    with pytest.raises(InputError, match="devices = 64: from 1 to the"):
        finish(tmp_path / "run", devices=64)
    assert not (tmp_path / "run").exists()


def test_snapshots_are_spread_over_the_run(tmp_path: Path) -> None:
    config = override(small_config(), {"optimizer": {"num_steps": 10}, "measure": {"snapshots": 4}})
    finish(tmp_path / "run", config)
    assert [row["step"] for row in rows(tmp_path / "run", "metrics.jsonl")] == [0, 3, 6, 9, 10]
