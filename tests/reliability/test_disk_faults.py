"""Disks that fail: at every operation of a save, and of a run."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from recombine.errors import InputError, describe
from recombine.storage.checkpoint import (
    Checkpoint,
    DamagedCheckpoint,
    list_checkpoints,
    read_checkpoint,
    save_checkpoint,
)
from tests.reliability.faults import FAULTS, Crash, FailingDisk, LyingDisk, disk
from tests.reliability.small_run import finish, result
from tests.study.studies import MADE


def make_checkpoint(step: int) -> Checkpoint:
    rng = np.random.default_rng(step)
    arrays = {"model.weight": rng.normal(size=(5, 7)).astype(np.float32), "optimizer.count": np.asarray(step)}
    return Checkpoint(step, arrays, {"metrics.jsonl": f'{{"step": {step}}}\n'}, MADE)


def good_steps(directory: Path) -> list[int]:
    steps = []
    for path in list_checkpoints(directory):
        try:
            checkpoint = read_checkpoint(path)
        except DamagedCheckpoint:
            continue
        expected = make_checkpoint(checkpoint.step)
        assert checkpoint.texts == expected.texts
        for name, array in expected.arrays.items():
            np.testing.assert_array_equal(checkpoint.arrays[name], array)
        steps.append(checkpoint.step)
    return steps


def count_operations(directory: Path, new: int) -> int:
    directory.mkdir()
    for step in (10, 20):
        save_checkpoint(directory, make_checkpoint(step))
    with disk(FailingDisk()) as shim:
        save_checkpoint(directory, make_checkpoint(new))
    return shim.count


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("power", ["kept", "lost", "garbled"])
@pytest.mark.parametrize("new", [30, 20], ids=["a new step", "the same step again"])
def test_every_operation_of_a_save_fails_in_turn(
    tmp_path: Path, fault: str, power: str, new: int, attacked: Callable
) -> None:
    operations = count_operations(tmp_path / "count", new)
    assert operations > 15
    for at in range(operations):
        directory = tmp_path / f"{at}"
        directory.mkdir()
        for step in (10, 20):
            save_checkpoint(directory, make_checkpoint(step))
        attacked("a disk fault in a save")
        with disk(FailingDisk(at, fault)) as shim:
            returned = False
            try:
                save_checkpoint(directory, make_checkpoint(new))
                returned = True
            except Crash:
                pass
            except OSError as error:
                assert str(directory) in describe(error), "an error names its file"
        assert shim.count > at
        if power != "kept":
            shim.lose_power(garble=power == "garbled")
        good = good_steps(directory)
        assert good[0] == new if returned else good[0] in (20, new)
        assert len(set(good)) >= 2, "two good ones at every instant"
        assert len(good) == len(list_checkpoints(directory)) or power != "kept", "what is called step-… is whole"
        save_checkpoint(directory, make_checkpoint(40))  # and nothing that is left is in the way
        assert good_steps(directory)[:1] == [40]


def test_what_has_been_saved_survives_a_loss_of_power(tmp_path: Path) -> None:
    for garble in (False, True):
        directory = tmp_path / f"{garble}"
        directory.mkdir()
        with disk(FailingDisk()) as shim:
            for step in (10, 20, 30):
                save_checkpoint(directory, make_checkpoint(step))
        shim.lose_power(garble)
        assert good_steps(directory) == [30, 20]


@pytest.mark.parametrize("at", [0, 1, 2], ids=["state", "metrics", "manifest"])
def test_what_the_disk_does_not_give_back_is_noticed_before_anything_is_removed(tmp_path: Path, at: int) -> None:
    for step in (10, 20):
        save_checkpoint(tmp_path, make_checkpoint(step))
    with disk(LyingDisk(at)), pytest.raises(OSError, match="does not give back"):
        save_checkpoint(tmp_path, make_checkpoint(30))
    assert good_steps(tmp_path) == [20, 10]
    assert (tmp_path / "damaged-step-000000030").is_dir()
    with disk(LyingDisk(at)), pytest.raises(OSError, match="does not give back"):
        save_checkpoint(tmp_path, make_checkpoint(20))
    assert good_steps(tmp_path) == [20, 10]


def test_two_are_kept_and_the_order_is_that_of_the_steps(tmp_path: Path) -> None:
    for step in (5, 1_000_000_000, 70, 999_999_999):
        save_checkpoint(tmp_path, make_checkpoint(step))
    assert good_steps(tmp_path) == [1_000_000_000, 999_999_999]


def test_a_damaged_one_is_no_reason_to_remove_a_good_one(tmp_path: Path) -> None:
    for step in (10, 20):
        save_checkpoint(tmp_path, make_checkpoint(step))
    (tmp_path / "step-000000020" / "state.safetensors").write_bytes(b"")
    save_checkpoint(tmp_path, make_checkpoint(30))
    assert good_steps(tmp_path) == [30, 10]


def test_a_state_that_is_not_finite_is_not_saved(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, make_checkpoint(10))
    checkpoint = make_checkpoint(20)
    checkpoint.arrays["model.weight"][2, 3] = np.inf
    with pytest.raises(ArithmeticError, match=r"model\.weight is not finite after 20 steps"):
        save_checkpoint(tmp_path, checkpoint)
    assert good_steps(tmp_path) == [10]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "run"
    finish(path)
    return path


def test_two_uninterrupted_runs_are_equal(whole: Path, tmp_path: Path) -> None:
    finish(tmp_path / "again")
    assert result(tmp_path / "again") == result(whole)


@pytest.mark.parametrize("fault", ["crash", "crash after", "ENOSPC", "power lost", "power garbled"])
def test_a_run_survives_a_fault_at_every_operation(
    whole: Path, tmp_path: Path, fault: str, torture: bool, attacked: Callable
) -> None:
    with disk(FailingDisk()) as shim:
        finish(tmp_path / "count")
    operations = shim.count
    assert operations > 100
    chosen = range(operations) if torture else range(0, operations, operations // 4)
    faults = 0
    for at in chosen:
        path = tmp_path / f"{at}"
        attacked("a disk fault in a run")
        with disk(FailingDisk(at, "crash" if fault.startswith("power") else fault)) as shim:
            try:
                finish(path)
            except (Crash, OSError, InputError):
                faults += 1
        if fault.startswith("power"):
            shim.lose_power(garble=fault.endswith("garbled"))
        finish(path)
        assert result(path) == result(whole), f"operation {at}"
    assert faults >= len(chosen) - 2  # how many dispatches there are depends on the clock, and so does the last number
