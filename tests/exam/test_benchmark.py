"""The frozen benchmark: its episodes are the same everywhere, and its results are those of their predictions."""

import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest
from msgspec import structs

from recombine.cli.main import main
from recombine.exam.benchmark import (
    FLOATS,
    FROZEN,
    OtherEpisodes,
    Setting,
    check_frozen,
    episodes_of,
    frozen,
    settings,
)
from recombine.exam.episode_file import Drawn, EpisodeFile, draw
from recombine.exam.result import Result
from recombine.record.codec import decode
from recombine.task.episode import Episode
from recombine.task.sample import sample_split
from recombine.task.teacher import task_teacher

NOISY = Setting("noisy", "connected+", 0)


@pytest.fixture(scope="module")
def noisy() -> EpisodeFile:
    return episodes_of(NOISY, "smoke")


def changed(file: EpisodeFile, change: Callable[[Episode], Episode], split: str = "in_dist") -> EpisodeFile:
    """The file with other episodes of a split."""
    part = file.drawn[split]
    episodes = change(part.episodes)
    novel = None if part.novel is None else part.novel._replace(episodes=episodes)
    return file._replace(drawn=file.drawn | {split: part._replace(episodes=episodes, novel=novel)})


def refused(file: EpisodeFile) -> bool:
    try:
        check_frozen(NOISY.name, file, frozen(NOISY, "smoke"))
    except OtherEpisodes:
        return True
    return False


@pytest.mark.parametrize("name", FLOATS)
def test_one_other_number_in_one_episode_is_refused(name: str, noisy: EpisodeFile) -> None:
    def change(episodes: Episode) -> Episode:
        found = np.array(getattr(episodes, name))
        found.reshape(len(found), -1)[3, 0] += 0.1
        return eqx.tree_at(lambda e: getattr(e, name), episodes, found)

    for split in noisy.drawn:
        assert refused(changed(noisy, change, split))


def test_other_episodes_are_refused(noisy: EpisodeFile) -> None:
    task, length = noisy.task, noisy.task.episode_length
    another = task_teacher(task, 1)
    more_noise = task_teacher(replace(task, label_noise=0.11), 0)
    assert not refused(noisy)
    assert refused(changed(noisy, lambda e: jax.tree.map(lambda array: array[::-1], e)))
    assert refused(noisy._replace(drawn=noisy.drawn | {"ood": noisy.drawn["in_dist"]}))
    assert refused(noisy._replace(drawn=draw(structs.replace(noisy.identity, directions=None), task, another)))
    assert refused(noisy._replace(teacher=another))  # of the training batch
    again = sample_split(0, "in_dist", more_noise, task.support, length, noisy.identity.episodes)
    assert refused(noisy._replace(drawn=noisy.drawn | {"in_dist": Drawn(*again)}))
    assert refused(noisy._replace(task=replace(task, label_noise=0.11)))


def test_last_digits_of_another_processor_are_not_refused(noisy: EpisodeFile) -> None:
    rng = np.random.default_rng(0)

    def rounded_otherwise(array: jax.Array) -> np.ndarray:
        found = np.asarray(array)
        return found if found.dtype.kind == "i" else found * (1 + 1e-6 * rng.standard_normal(found.shape))

    for split in noisy.drawn:
        assert not refused(changed(noisy, lambda e: jax.tree.map(rounded_otherwise, e), split))


def test_another_span_is_refused(noisy: EpisodeFile) -> None:
    """The span decides the score of the novel part: of two seeds, it differs."""
    part = noisy.drawn["novel"]
    assert part.novel is not None
    novel = part.novel._replace(finer=part.novel.finer[::-1])
    assert refused(noisy._replace(drawn=noisy.drawn | {"novel": part._replace(novel=novel)}))
    fewer = part.novel._replace(span=part.novel.span[..., :-1])
    assert refused(noisy._replace(drawn=noisy.drawn | {"novel": part._replace(novel=fewer)}))


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
    assert found["score"] == [pytest.approx(np.mean([run["r2"]["novel"] for run in found["runs"]]))]
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
