"""The benchmark: its result is that of NumPy, verifying finds what was changed, and bad input gets one line."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

from recombine.cli.main import main
from recombine.exam.benchmark import FROZEN, Result, Setting, episodes_of, settings
from recombine.record.codec import decode

OUT = Path("runs/recombine-v1-DeepSet")
RESULT = OUT / "recombine-v1-smoke.npz"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result of one baseline, trained for a few steps."""
    here = tmp_path_factory.mktemp("benchmark")
    command = ["benchmark", "--model", "deep-set", "--preset", "smoke", "--workers", "1", "--out", str(here / OUT)]
    assert main(command) == 0
    return here / RESULT


@pytest.mark.slow
def test_the_scores_are_those_of_the_predictions(result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(result), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    setting = Setting("even", "connected+", 0)
    (run,) = [run for run in found["runs"] if run["task"] == "even"]
    with np.load(result) as arrays:
        prediction = arrays[setting.name].astype(float)
    place = 0
    for split, part in episodes_of(setting, "smoke").drawn.items():
        y = np.asarray(part.episodes.query_y, float)
        here, place = prediction[place : place + len(y)], place + len(y)
        mean = np.asarray(part.episodes.context_y, float).mean(axis=1)
        if split != "novel":
            expected = 1 - ((y - here) ** 2).sum() / ((y - mean) ** 2).sum()
            assert run["r2"][split] == pytest.approx(expected, abs=1e-5)
    assert found["score"] == [pytest.approx(np.mean([run["r2"]["ood"] for run in found["runs"]]))]
    assert found["parameters"] > 0
    assert found["core_hours"] > 0


@pytest.mark.slow
def test_what_was_changed_is_found(result: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with np.load(result) as arrays:
        data = dict(arrays)
    about, name = decode(str(data["about"]), Result), "even-connected+-seed0"
    claimed = str(data["about"]).replace(str(about.runs[0].r2["ood"]), "0.99")
    changed = {
        "R² of ood": {"about": np.asarray(claimed)},
        "other episodes": {"about": np.asarray(str(data["about"]).replace(about.runs[0].episodes, "0" * 16))},
        "recombine-v2": {"about": np.asarray(str(data["about"]).replace("recombine-v1", "recombine-v2"))},
        "cannot be read": {"about": np.asarray("{}")},
        "R² of in_dist": {name: data[name][::-1]},
        "not finite": {name: np.full_like(data[name], np.nan)},
        "must be": {name: data[name][:-1]},
        "do not belong": {"more": data[name]},
    }
    for complaint, arrays in changed.items():
        np.savez(tmp_path / "result.npz", **(data | arrays))
        assert main(["verify", str(tmp_path / "result.npz")]) == 2
        said = capsys.readouterr().err
        assert complaint in said
        assert said.count("\n") == 1


@pytest.mark.slow
def test_a_result_is_a_row_of_the_table(result: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "evidence" / "scripts"))
    head, _, row = importlib.import_module("tables").benchmark_table([result]).splitlines()
    assert len(head.split("|")) == len(row.split("|"))
    assert "DeepSet" in row


def test_every_run_is_frozen() -> None:
    keys = {one.name for one in settings("full")} | {f"smoke-{one.name}" for one in settings("smoke")}
    assert set(FROZEN) == keys
    assert set(settings("quick")) < set(settings("full"))
    assert len({frozen.digest for frozen in FROZEN.values()}) == len(FROZEN)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--model", "deep-sets"], "deep-set"),
        (["--model", "nowhere:Class"], "cannot be imported"),
        (["--model", "deep-set", "--set", "task.input_dim=4"], "only model.… and optimizer.…"),
        (["--model", "deep-set", "--set", "optimizer.num_steps=4"], "optimizer.num_steps = 4"),
        (["--model", "deep-set", "--set", "model.kind=transformer"], "--model"),
        (["--model", "deep-set", "--preset", "paper"], "preset"),
        (["--model", "deep-set", "--slurm", "partition=cpu"], "slurm = 'partition=cpu'"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["benchmark", *arguments]) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [None, b"no archive", {}, {"about": np.asarray("{}")}], ids=str)
def test_a_file_that_is_no_result_is_one_line(
    content: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "result.npz"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, dict):
        np.savez(path, **content)
    assert main(["verify", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
