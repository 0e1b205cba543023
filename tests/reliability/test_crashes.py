"""A run that crashes at any disk operation resumes, and ends exactly like a run that was never interrupted."""

from pathlib import Path

import pytest

from recombine.errors import InputError
from tests.reliability.faults import Crash, FailingDisk, disk
from tests.reliability.small_run import finish, result


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "run"
    finish(path)
    return path


def test_two_uninterrupted_runs_are_equal(whole: Path, tmp_path: Path) -> None:
    finish(tmp_path / "again")
    assert result(tmp_path / "again") == result(whole)


@pytest.mark.parametrize("fault", ["crash", "crash after", "ENOSPC", "power lost", "power garbled"])
def test_a_run_survives_a_fault_at_every_operation(whole: Path, tmp_path: Path, fault: str, torture: bool) -> None:
    with disk(FailingDisk()) as shim:
        finish(tmp_path / "count")
    operations = shim.count
    assert operations > 100
    chosen = range(operations) if torture else range(0, operations, operations // 6)
    faults = 0
    for at in chosen:
        path = tmp_path / f"{at}"
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
