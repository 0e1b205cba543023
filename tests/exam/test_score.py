"""Predictions from anywhere: episode files, their scores, and the frozen benchmark."""

import importlib
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from recombine.cli.main import main
from recombine.config.schema import Config
from recombine.config.task import TaskConfig
from recombine.exam.benchmark import FROZEN, Result, Setting, episodes_of, settings
from recombine.exam.episode_file import digest_of
from recombine.measure.novel import novel_scores, novel_tasks
from recombine.record.codec import decode, plain
from recombine.task.teacher import config_teacher

SIZES = ["--input-dim", "4", "--hidden-dim", "5", "--length", "8", "--episodes", "30", "--seed", "7"]
DOCS = (Path(__file__).parents[2] / "docs" / "predictions.md").read_text(encoding="utf-8")


def sample(path: Path, split: str, *more: str) -> dict[str, np.ndarray]:
    assert main(["task", "sample", "--split", split, *SIZES, *more, "--out", str(path)]) == 0
    with np.load(path) as data:
        return dict(data)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray]]:
    path = tmp_path_factory.mktemp("exam") / "episodes.npz"
    return path, sample(path, "all")


def scored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], episodes: Path, prediction: np.ndarray, *options: str
) -> dict:
    with np.load(episodes) as data:
        np.savez(tmp_path / "predictions.npz", prediction=prediction, digest=data["digest"])
    capsys.readouterr()
    arguments = ["score", str(tmp_path / "predictions.npz"), "--episodes", str(episodes), *options, "--json"]
    assert main(arguments) == 0
    return json.loads(capsys.readouterr().out)


def test_scores_agree_with_numpy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], everything: tuple[Path, dict[str, np.ndarray]]
) -> None:
    path, data = everything
    y, mean = data["query_y"].astype(float), data["context_y"].astype(float).mean(axis=1)
    prediction = 0.8 * y + 0.1 * np.random.default_rng(0).normal(size=len(y))
    found = scored(tmp_path, capsys, path, prediction, "--no-references")
    assert found["digest"] == str(data["digest"])
    assert found["references"] == {}
    assert list(found["scores"]["splits"]) == ["in_dist", "ood", "control", "control_modules"]
    for split, score in found["scores"]["splits"].items():
        here = data["split"] == split
        assert here.sum() == 30
        error, spread = (y - prediction)[here] ** 2, (y - mean)[here] ** 2
        assert score["r2"] == pytest.approx(1 - error.sum() / spread.sum(), rel=1e-5)
        labels = np.column_stack([data["context_y"], data["query_y"]]).astype(float)[here]
        assert score["r2_sequence"] == pytest.approx(np.mean(1 - error / labels.var(axis=1)), rel=1e-5)
        for mask, entry in (score.get("masks") or {}).items():
            of_mask = (data["masks"][data["mask_index"][here]] == [int(c) for c in mask]).all(axis=1)
            assert entry["episodes"] == of_mask.sum() > 0
            assert entry["r2"] == pytest.approx(1 - error[of_mask].sum() / spread[of_mask].sum(), rel=1e-4)
        assert ("masks" in score) == (split in ("in_dist", "ood"))
    config = Config(task=TaskConfig(input_dim=4, hidden_dim=5, episode_length=8), seed=7)
    novel = novel_scores(novel_tasks(config, config_teacher(config)), prediction[data["split"] == "novel"])
    assert found["scores"]["novel"] == plain(novel)
    assert found["about"]["seed"] == 7
    assert found["about"]["task"]["support"]["name"] == "connected+"


def test_masks_belong_to_their_splits(everything: tuple[Path, dict[str, np.ndarray]]) -> None:
    _, data = everything
    np.testing.assert_array_equal(data["latent"] > 0, data["masks"][data["mask_index"]] == 1)
    held_out = np.isin(data["split"], ["ood", "novel"])
    assert set(data["mask_index"][held_out]) == {12, 13, 14}
    assert set(data["mask_index"][~held_out]) == set(range(12))


@pytest.mark.slow
def test_the_example_of_the_docs_is_the_reference_ridge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```$", DOCS, re.DOTALL | re.MULTILINE)
    (commands,) = re.findall(r"^```sh\n(.*?)^```$", DOCS, re.DOTALL | re.MULTILINE)
    write, _, score = [shlex.split(line)[1:] for line in commands.splitlines()]
    assert main([*write[:-3], "40", *write[-2:]]) == 0
    exec(compile(code, "ridge.py", "exec"), {})
    capsys.readouterr()
    assert main([*score, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for split, own in found["scores"]["splits"].items():
        assert own["r2"] == pytest.approx(found["references"]["ridge"]["splits"][split]["r2"], abs=1e-5)
        assert found["references"]["known_latent"]["splits"][split]["r2"] == pytest.approx(1)
    assert found["scores"]["novel"]["ood"]["slope"] == pytest.approx(
        found["references"]["ridge"]["novel"]["ood"]["slope"], abs=1e-5
    )
    assert main(score) == 0
    assert "per sequence" in capsys.readouterr().out


Files = tuple[Path, Path]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Files:
    here = tmp_path_factory.mktemp("good")
    data = sample(here / "episodes.npz", "ood")
    np.savez(here / "predictions.npz", prediction=data["query_y"], digest=data["digest"])
    return here / "predictions.npz", here / "episodes.npz"


def change(path: Path, **changes: object) -> None:
    with np.load(path) as data:
        arrays = dict(data)
    for name, value in changes.items():
        if value is None:
            del arrays[name]
        else:
            arrays[name] = np.asarray(value(arrays[name]) if callable(value) else value)
    np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]


def relabel(path: Path) -> None:
    """Other labels, with the digest that they need."""
    change(path, query_y=lambda y: -y)
    with np.load(path) as data:
        arrays = {name: data[name] for name in data.files if name != "digest"}
    change(path, digest=digest_of(arrays))


BAD: dict[str, Callable[[Path, Path], object]] = {
    "has shape (29,)": lambda p, e: change(p, prediction=lambda y: y[:-1]),
    "has shape (30, 1)": lambda p, e: change(p, prediction=lambda y: y[:, None]),
    "2 of 30 predictions are not finite, the first at episode 3": lambda p, e: change(
        p, prediction=lambda y: np.where(np.isin(np.arange(30), [3, 9]), np.nan, y)
    ),
    "must be real numbers": lambda p, e: change(p, prediction=lambda y: y.astype(complex)),
    "are for other episodes": lambda p, e: change(p, digest="0" * 64),
    "has no array digest": lambda p, e: change(p, digest=None),
    "has no array prediction": lambda p, e: change(p, prediction=None),
    "has no array query_x": lambda p, e: change(e, query_x=None),
    "edited or damaged": lambda p, e: change(e, query_y=lambda y: -y),
    "differs from what its seed and task give": lambda p, e: relabel(e),
    "cannot be read (BadZipFile)": lambda p, e: p.write_text("1, 2, 3"),
    "cannot be read (No such file": lambda p, e: e.unlink(),
}


@pytest.mark.parametrize("words", BAD)
def test_bad_files_get_one_line(words: str, good: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    predictions, episodes = (tmp_path / path.name for path in good)
    for old, new in zip(good, (predictions, episodes), strict=True):
        new.write_bytes(old.read_bytes())
    BAD[words](predictions, episodes)
    capsys.readouterr()
    assert main(["score", str(predictions), "--episodes", str(episodes)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert words in captured.err


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
    head, _, row = importlib.import_module("docs").benchmark_table([result]).splitlines()
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
