"""A run that is read while another process saves it: what is read belongs to one checkpoint, and nothing is damaged."""

from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest

import recombine.run.export
import recombine.run.load
import recombine.storage.checkpoint
from recombine.files import read_file
from recombine.run.export import check_export, export_runs
from recombine.run.load import load_model
from recombine.storage.checkpoint import (
    MOST_TRIES,
    Checkpoint,
    DamagedCheckpoint,
    list_checkpoints,
    newest_good,
    read_checkpoint,
    save_checkpoint,
)
from recombine.storage.integrity import recorded
from recombine.storage.reader import last_row, read_run
from recombine.storage.source import open_run
from tests.reliability.small_run import finish
from tests.study.studies import MADE


def save(directory: Path, step: int, version: float = 0.0) -> None:
    arrays = {"weight": np.full(3, step + version, np.float32)}
    save_checkpoint(directory, Checkpoint(step, arrays, {"metrics.jsonl": f"{step} {version}\n"}, MADE))


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], times: int = 1) -> list[Path]:
    """Between the manifest and the state of a checkpoint, another process acts, so many times. Returns where it did."""
    acted: list[Path] = []

    def read_then_act(path: Path, *limits: object) -> bytes:
        data = read_file(path, *limits)  # pyright: ignore[reportArgumentType]
        if path.name == "manifest.json" and len(acted) < times:
            acted.append(path.parent)
            with monkeypatch.context() as patch:  # the other process also reads what it has saved
                patch.setattr(recombine.storage.checkpoint, "read_file", read_file)
                act()
        return data

    monkeypatch.setattr(recombine.storage.checkpoint, "read_file", read_then_act)
    return acted


def test_the_same_step_is_saved_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (10, 20):
        save(tmp_path, step)
    assert meanwhile(monkeypatch, lambda: save(tmp_path, 20, version=0.5)) == []
    found, damage = newest_good(tmp_path, read_checkpoint)
    assert found is not None
    assert (found.step, found.texts["metrics.jsonl"], found.arrays["weight"][0]) == (20, "20 0.5\n", 20.5)
    assert damage == []


def test_all_checkpoints_are_removed_for_newer_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (10, 20):
        save(tmp_path, step)
    acted = meanwhile(monkeypatch, lambda: [save(tmp_path, step) for step in (30, 40)])
    found, damage = newest_good(tmp_path, read_checkpoint)
    assert [path.name for path in acted] == ["step-000000020"]
    assert found is not None
    assert (found.step, found.arrays["weight"][0], damage) == (40, 40.0, [])


def test_one_is_removed_after_it_was_listed(tmp_path: Path) -> None:
    for step in (10, 20):
        save(tmp_path, step)
    removed: list[Path] = []

    def read(path: Path) -> Checkpoint:
        if not removed:
            removed.append(path)
            for step in (30, 40):
                save(tmp_path, step)
        return read_checkpoint(path)

    found, damage = newest_good(tmp_path, read)
    assert found is not None
    assert (found.step, damage) == (40, [])


def test_a_run_that_never_stays_the_same_is_not_read_forever(tmp_path: Path) -> None:
    """Another user's, below a directory that is served: what is read in the end counts as damaged."""
    reads = 0

    def read(path: Path) -> None:
        nonlocal reads
        reads += 1
        path.rename(path.with_name("step-aside"))
        path.with_name("step-aside").rename(path)
        raise DamagedCheckpoint(path.name)

    save(tmp_path, 10)
    found, damage = newest_good(tmp_path, read)
    assert (found, [str(one) for one in damage], reads) == (None, ["step-000000010"], MOST_TRIES)


def test_damage_is_told_and_the_one_before_counts(tmp_path: Path) -> None:
    for step in (10, 20):
        save(tmp_path, step)
    (list_checkpoints(tmp_path)[0] / "state.safetensors").write_bytes(b"")
    found, damage = newest_good(tmp_path, read_checkpoint)
    assert found is not None
    assert (found.step, len(damage)) == (10, 1)


def test_the_scores_and_the_model_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    finish(run, stop_at=4)
    meanwhile(monkeypatch, lambda: finish(run, stop_at=8))
    found = recorded(open_run(run))
    assert found.notes == ()
    assert [row.step for row in read_run(open_run(run)).rows] == [0, 4, 8]
    assert found.metrics == (run / "metrics.jsonl").read_text()
    monkeypatch.undo()
    meanwhile(monkeypatch, lambda: finish(run))
    said: list[str] = []
    assert (load_model(run, say=said.append).step, said) == (12, [])


@pytest.mark.parametrize("when", ["before the model is read", "after the model is read"])
def test_an_export_has_parameters_and_scores_of_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Otherwise a newer model would come under an older step's name, with the older scores."""
    run, out = tmp_path / "run", tmp_path / "shared"
    finish(run, stop_at=4)
    models = {4: load_model(run).model}
    check_export([open_run(run)], out, weights=True)
    load = recombine.run.load.newest_good
    waiting = [lambda: finish(run)]

    def train_on(*arguments):
        if when.startswith("before") and waiting:
            waiting.pop()()
        found = load(*arguments)
        if waiting:
            waiting.pop()()
        return found

    monkeypatch.setattr(recombine.run.load, "newest_good", train_on)
    export_runs([open_run(run)], out, weights=True)
    monkeypatch.undo()
    models[12] = load_model(run).model
    shared, row = load_model(out / "run"), last_row(open_run(out / "run"))
    assert row is not None
    assert shared.step == row.step == (12 if when.startswith("before") else 4)
    for a, b in zip(jax.tree.leaves(shared.model), jax.tree.leaves(models[shared.step]), strict=True):
        np.testing.assert_array_equal(a, b)
    assert f"{shared.step:,} of 12 steps" in (out / "run" / "MODEL_CARD.md").read_text()


def test_a_run_is_exported_again_while_its_export_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The older metrics and the newer parameters are refused together."""
    run, out = tmp_path / "run", tmp_path / "shared"
    finish(run, stop_at=4)
    export_runs([open_run(run)], out, weights=True)
    finish(run)
    found = recorded(open_run(out / "run"))
    export_runs([open_run(run)], out, weights=True)
    monkeypatch.setattr(recombine.run.load, "recorded", lambda _: found)
    with pytest.raises(recombine.InputError, match="has changed since it was exported"):
        load_model(out / "run")
    monkeypatch.undo()
    assert load_model(out / "run").step == 12
