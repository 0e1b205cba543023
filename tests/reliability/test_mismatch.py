"""Resuming with other settings is refused, and each field is named; a flag resumes anyway, and is recorded."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

import recombine.run.training
from recombine import code_digest
from recombine.code_digest import model_digest
from recombine.errors import InputError
from recombine.model.custom import import_model
from recombine.record.run_state import Identity
from recombine.storage.checkpoint import checkpoint_path, read_checkpoint, save_checkpoint
from recombine.storage.source import METRICS
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
    "sources",
    "model_sources",
    "task_sources",
    "framework",
]


@pytest.mark.parametrize(("change", "message"), CHANGES, ids=[message for _, message in CHANGES])
def test_another_configuration_is_refused(tmp_path: Path, change: dict, message: str, attacked: Callable) -> None:
    attacked("a resume with another configuration, machine or code")
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


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stopped") / "run"
    finish(path, stop_at=4)
    return path


@pytest.mark.parametrize("field", IDENTITY)
def test_another_machine_is_refused(
    stopped: Path, tmp_path: Path, field: str, attacked: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    attacked("a resume with another configuration, machine or code")
    path = shutil.copytree(stopped, tmp_path / "run")
    identity = recombine.run.training.identity
    assert set(Identity.__struct_fields__) == {*IDENTITY, "together", "start"}
    is_custom = field in ("model_sources", "task_sources", "framework")  # of a custom class, which this run has not
    value = None if is_custom else getattr(identity(), field)
    other = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else "other"

    def elsewhere(*arguments: Any) -> Identity:
        return msgspec.structs.replace(identity(*arguments), **{field: other})

    monkeypatch.setattr(recombine.run.training, "identity", elsewhere)
    with pytest.raises(InputError, match=rf"machine\.{field}: .* → {other}"):
        finish(path)
    finish(path, resume_anyway=True)
    changes = json.loads((path / "env.json").read_text())["changes"]
    assert changes == [{"step": 4, "fields": {f"machine.{field}": [value, other]}}]
    finish(path)  # it is now a run of that machine


def test_a_run_of_unknown_code_resumes_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that were made before code digests were recorded have no digest."""
    identity = recombine.run.training.identity
    with monkeypatch.context() as before:
        unknown = {"sources": "", "model_sources": ""}
        before.setattr(recombine.run.training, "identity", lambda *a: msgspec.structs.replace(identity(*a), **unknown))
        finish(tmp_path / "run", stop_at=4)
    said = finish(tmp_path / "run")
    assert any("code" in text for text in said)
    finish(tmp_path / "whole")
    assert result(tmp_path / "run") == result(tmp_path / "whole")


def test_a_custom_model_that_was_changed_does_not_resume(
    tmp_path: Path, attacked: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its module, or a module that it imports, has changed since the run was made."""
    attacked("a resume with another configuration, machine or code")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "changing_layer.py").write_text("import jax.numpy as jnp\n\npool = jnp.mean\n")
    (tmp_path / "changing_model.py").write_text(
        "import changing_layer\n"
        "import equinox as eqx\n"
        "from recombine.model.interface import Output, Trace\n\n\n"
        "class Pooled(eqx.Module):\n"
        "    weight: eqx.nn.Linear\n\n"
        "    def __init__(self, config, *, key):\n"
        "        self.weight = eqx.nn.Linear(config.task.input_dim, 'scalar', key=key)\n\n"
        "    def __call__(self, context_x, context_y, query_x):\n"
        "        return Output(self.weight(query_x) + changing_layer.pool(context_y), Trace())\n"
    )
    config = replace(small_config(), model=import_model("changing_model:Pooled"))
    finish(tmp_path / "run", config, stop_at=4)
    finish(tmp_path / "run", config, stop_at=5)
    (tmp_path / "changing_layer.py").write_text("import jax.numpy as jnp\n\npool = jnp.sum\n")
    model_digest.cache_clear()
    code_digest._scan.cache_clear()
    with pytest.raises(InputError, match=r"machine\.model_sources"):
        finish(tmp_path / "run", config)
    finish(tmp_path / "run", config, resume_anyway=True)
    (change,) = json.loads((tmp_path / "run" / "env.json").read_text())["changes"]
    assert list(change["fields"]) == ["machine.model_sources"]


def test_a_custom_model_may_move_to_another_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for module in ("former_model", "moved_model"):
        (tmp_path / f"{module}.py").write_text(
            "import equinox as eqx\n"
            "from recombine.model.interface import Output, Trace\n\n\n"
            "class Linear(eqx.Module):\n"
            "    weight: eqx.nn.Linear\n\n"
            "    def __init__(self, config, *, key):\n"
            "        self.weight = eqx.nn.Linear(config.task.input_dim, 'scalar', key=key)\n\n"
            "    def __call__(self, context_x, context_y, query_x):\n"
            "        return Output(self.weight(query_x), Trace())\n"
        )
    former, moved = (
        replace(small_config(), model=import_model(f"{module}:Linear")) for module in ("former_model", "moved_model")
    )
    finish(tmp_path / "run", former, stop_at=4)
    with pytest.raises(InputError, match=r"model\.kind: former_model:Linear → moved_model:Linear.*--resume-anyway"):
        finish(tmp_path / "run", moved)
    finish(tmp_path / "run", moved, resume_anyway=True)
    for resume_anyway in (False, True):
        with pytest.raises(InputError, match="another model"):
            finish(tmp_path / "run", small_config(), resume_anyway=resume_anyway)


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


def test_metrics_of_another_version_are_refused_in_one_line(tmp_path: Path) -> None:
    """The checkpoint is intact, but has a row that this version does not know: nothing is renamed or written."""
    path = tmp_path / "run"
    finish(path, stop_at=4)
    newest = read_checkpoint(checkpoint_path(path / "checkpoints", 4))
    other = newest.texts[METRICS].replace('"r2"', '"r_squared"')
    save_checkpoint(path / "checkpoints", newest._replace(texts=newest.texts | {METRICS: other}))
    before = result(path)
    with pytest.raises(InputError, match=METRICS):
        finish(path, resume_anyway=True)
    assert result(path) == before
