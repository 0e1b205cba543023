"""Sharing the batch among several devices gives the same training."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.reliability.small_run import SMALL

ROOT = Path(__file__).parents[2]


def train(path: Path, kind: str, *arguments: str, batch_size: int = 8) -> subprocess.CompletedProcess:
    changes = {**SMALL, "optimizer": {"num_steps": 12, "batch_size": batch_size}}
    changes = [f"{room}.{name}={value}" for room, fields in changes.items() for name, value in fields.items()]
    command = [sys.executable, "-m", "recombine", "train", "--model", kind, "--preset", "smoke", "--out", str(path)]
    return subprocess.run(
        [*command, "--json", *arguments, "--set", *changes], cwd=ROOT, capture_output=True, text=True, timeout=300
    )


DEVICES = [("transformer", (1, 4)), pytest.param("hypertransformer", (1, 2), marks=pytest.mark.slow)]


@pytest.mark.parametrize(("kind", "numbers"), DEVICES)
def test_the_same_training_on_more_devices(tmp_path: Path, kind: str, numbers: tuple[int, ...]) -> None:
    """The result agrees with one device up to rounding, and has the same bits every time."""
    states: dict[int, dict] = {}
    for i, devices in enumerate(numbers):
        ended = train(tmp_path / f"{i}", kind, "--devices", str(devices))
        assert ended.returncode == 0, ended.stderr
        assert json.loads(ended.stdout)["step"] == 12
        state = load_file(tmp_path / f"{i}" / "checkpoints" / "step-000000012" / "state.safetensors")
        for name, array in states.get(devices, {}).items():
            np.testing.assert_array_equal(state[name], array, err_msg=name)
        states[devices] = state
    for state in states.values():
        for name, array in states[1].items():
            np.testing.assert_allclose(state[name], array, rtol=2e-3, atol=2e-5, err_msg=name)


def test_devices_that_do_not_divide_the_batch(tmp_path: Path) -> None:
    ended = train(tmp_path / "run", "transformer", "--devices", "3")
    assert ended.returncode == 2
    assert "devices = 3: must divide optimizer.batch_size = 8" in ended.stderr
    assert not (tmp_path / "run").exists()
