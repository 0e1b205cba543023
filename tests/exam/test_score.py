"""Predictions from anywhere: episode files and their scores."""

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
from recombine.exam.episode_file import digest_of
from recombine.measure.novel import novel_scores, novel_tasks
from recombine.record.codec import plain
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


def test_vector_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of labels with three outputs, and its scores: R² pooled over episodes and outputs."""
    path, vectors = tmp_path / "vectors.npz", ["--set", "task.output_dim=3"]
    data = sample(path, "all", *vectors)
    episodes = len(data["split"])
    assert (data["context_y"].shape, data["query_y"].shape, data["a"].shape) == (
        (episodes, 7, 3),
        (episodes, 3),
        (3, 5),
    )
    y, mean = data["query_y"].astype(float), data["context_y"].astype(float).mean(axis=1)
    prediction = y + np.random.default_rng(0).normal(size=y.shape) * [0.1, 0.2, 0.3]
    found = scored(tmp_path, capsys, path, prediction, "--no-references")["scores"]
    for split, entry in found["splits"].items():
        here = data["split"] == split
        error, spread = np.sum((y - prediction)[here] ** 2), np.sum((y - mean)[here] ** 2)
        assert entry["r2"] == pytest.approx(1 - error / spread, rel=1e-5)
    truth = scored(tmp_path, capsys, path, y, "--no-references")["scores"]["novel"]["ood"]
    assert truth["slope"] == pytest.approx(1)
    for wrong, words in (
        (prediction[:, 0], f"has shape ({episodes},); 3 numbers per episode has shape ({episodes}, 3)"),
        (np.where(np.arange(3) == 1, np.nan, prediction), "predictions are not finite, the first at episode 0"),
    ):
        np.savez(tmp_path / "wrong.npz", prediction=wrong, digest=data["digest"])
        capsys.readouterr()
        assert main(["score", str(tmp_path / "wrong.npz"), "--episodes", str(path)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert words in line
