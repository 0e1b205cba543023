"""Resuming with other settings is refused, field by field; a flag goes on, and is recorded."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import recombine.run.training
from recombine.errors import InputError
from recombine.record.run_state import Identity
from tests.reliability.small_run import finish, result, small_config

# One change to each part of a configuration that leaves the shapes as they are, and what it is in the message.
CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"seed": 1}, "seed: 0 → 1"),
    ({"teacher_seed": 5}, "teacher_seed: None → 5"),
    ({"task": {"support": "connected"}}, "task.support.name: connected+ → connected"),
    ({"task": {"episode_length": 4}}, "task.episode_length: 3 → 4"),
    ({"model": {"causal": True}}, "model.causal: False → True"),
    ({"optimizer": {"learning_rate": 0.002}}, "optimizer.learning_rate: 0.001 → 0.002"),
    ({"measure": {"episodes": 5}}, "measure.episodes: 4 → 5"),
    ({"compute": {"path": "plain"}}, "compute.path: fast → plain"),
]
IDENTITY = [
    "recombine",
    "jax",
    "jaxlib",
    "numpy",
    "optax",
    "equinox",
    "x64",
    "platform",
    "device",
    "features",
    "devices",
    "threads",
    "xla_flags",
]


@pytest.mark.parametrize(("change", "message"), CHANGES, ids=[message for _, message in CHANGES])
def test_another_configuration_is_refused(tmp_path: Path, change: dict, message: str) -> None:
    path = tmp_path / "run"
    finish(path, stop_at=4)
    before = result(path)
    with pytest.raises(InputError) as caught:
        finish(path, small_config(**change))
    assert message in str(caught.value)
    assert "--resume-anyway" in str(caught.value)
    assert result(path) == before


def test_every_difference_is_named(tmp_path: Path) -> None:
    finish(tmp_path / "run", stop_at=4)
    with pytest.raises(InputError) as caught:
        finish(tmp_path / "run", small_config(seed=3, model={"causal": True}))
    assert "model.causal: False → True; seed: 0 → 3" in str(caught.value)


@pytest.mark.parametrize("field", IDENTITY)
def test_another_machine_is_refused(tmp_path: Path, field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run"
    finish(path, stop_at=4)
    identity = recombine.run.training.identity
    assert set(Identity.__struct_fields__) == {*IDENTITY, "together"}
    value = getattr(identity(1, 1), field)
    other = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else "other"

    def elsewhere(devices: int, vmapped: int) -> Identity:
        return msgspec.structs.replace(identity(devices, vmapped), **{field: other})

    monkeypatch.setattr(recombine.run.training, "identity", elsewhere)
    with pytest.raises(InputError, match=rf"machine\.{field}: .* → {other}"):
        finish(path)
    finish(path, resume_anyway=True)
    changes = json.loads((path / "env.json").read_text())["changes"]
    assert changes == [{"step": 4, "fields": {f"machine.{field}": [value, other]}}]
    finish(path)  # it is now a run of that machine


def test_going_on_with_another_configuration_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "run"
    finish(path, stop_at=4)
    longer = small_config(optimizer={"num_steps": 20})
    finish(path, longer, resume_anyway=True)
    env = json.loads((path / "env.json").read_text())
    assert env["changes"] == [{"step": 4, "fields": {"optimizer.num_steps": [12, 20]}}]
    assert [start["step"] for start in env["starts"]] == [0, 4]
    assert json.loads((path / "status.json").read_text())["step"] == 20
    finish(path, longer)


def test_a_model_of_another_shape_cannot_go_on(tmp_path: Path) -> None:
    finish(tmp_path / "run", stop_at=4)
    with pytest.raises(InputError, match="differ in the parameter"):
        finish(tmp_path / "run", small_config(model={"num_layers": 2}), resume_anyway=True)
    finish(tmp_path / "run")
