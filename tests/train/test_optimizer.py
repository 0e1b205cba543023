"""The optimizer and the count of operations against formulas; several devices."""

import json
import subprocess
import sys
from math import cos, pi
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from recombine.config.model import ModelKind
from recombine.config.preset import preset_config
from recombine.config.schema import Config, OptimizerConfig
from recombine.config.toml import override
from recombine.model.build import build_model
from recombine.task.episode import sample_episodes
from recombine.task.sample import mask_rows
from recombine.task.teacher import config_teacher
from recombine.train.flops import forward_flops, step_flops
from recombine.train.optimizer import learning_rate, make_optimizer
from recombine.train.step import init_state, query_loss
from tests.reliability.small_run import SMALL


def test_cosine_to_zero() -> None:
    schedule = learning_rate(OptimizerConfig(num_steps=1000, learning_rate=0.003))
    for step in (0, 1, 250, 500, 999, 1000):
        np.testing.assert_allclose(schedule(step), 0.003 * (1 + cos(pi * step / 1000)) / 2, rtol=1e-5, atol=1e-9)


def test_warm_up_and_end() -> None:
    schedule = learning_rate(OptimizerConfig(num_steps=1000, warmup_steps=100, final_fraction=0.1))
    np.testing.assert_allclose([schedule(s) for s in (0, 50, 100, 1000)], [0, 5e-4, 1e-3, 1e-4], rtol=1e-5, atol=1e-12)


def test_three_steps_by_hand() -> None:
    """Three different gradients: the first and the last are clipped, the second is not."""
    config = OptimizerConfig(num_steps=10, learning_rate=0.01, weight_decay=0.1, clip_norm=1.0)
    optimizer = make_optimizer(config)
    parameters = build_model(preset_config("smoke", "transformer"), key=jax.random.key(0)).readout
    state = optimizer.init(parameters)
    expected = {"weight": np.asarray(parameters.weight, float), "bias": np.asarray(parameters.bias, float)}
    first = {name: np.zeros_like(value) for name, value in expected.items()}
    second = {name: np.zeros_like(value) for name, value in expected.items()}
    rng = np.random.default_rng(0)
    for t, size in ((1, 10.0), (2, 0.01), (3, 3.0)):
        gradient = {name: size * rng.normal(size=value.shape) for name, value in expected.items()}
        given = jax.tree.map(jnp.zeros_like, parameters)
        given = eqx.tree_at(lambda p: (p.weight, p.bias), given, tuple(map(jnp.float32, gradient.values())))
        updates, state = optimizer.update(given, state, parameters)
        parameters = eqx.apply_updates(parameters, updates)
        norm = np.sqrt(sum((g**2).sum() for g in gradient.values()))
        assert (norm > 1) == (t != 2)
        rate = 0.01 * (1 + cos(pi * (t - 1) / 10)) / 2
        for name, decay in (("weight", 0.1), ("bias", 0.0)):
            g = gradient[name] * min(1.0, 1.0 / norm)
            first[name] = 0.9 * first[name] + 0.1 * g
            second[name] = 0.999 * second[name] + 0.001 * g**2
            step = (first[name] / (1 - 0.9**t)) / (np.sqrt(second[name] / (1 - 0.999**t)) + 1e-8)
            expected[name] = expected[name] - rate * (step + decay * expected[name])
            np.testing.assert_allclose(getattr(parameters, name), expected[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["transformer", "hypertransformer"])
@pytest.mark.parametrize("decay", ["matrices", "all"])
def test_what_decays(kind, decay) -> None:
    """With no gradient, only weight decay moves parameters: the matrices, or everything that is not zero."""
    config = OptimizerConfig(num_steps=10, learning_rate=0.1, weight_decay=0.5, decay=decay)
    model = build_model(preset_config("smoke", kind), key=jax.random.key(0))
    model = jax.tree.map(lambda leaf: leaf + 1.0, model)
    optimizer = make_optimizer(config)
    zeros = jax.tree.map(jnp.zeros_like, model)
    updates, _ = optimizer.update(zeros, optimizer.init(model), model)
    moved = {jax.tree_util.keystr(path): bool((u != 0).any()) for path, u in jax.tree.leaves_with_path(updates)}
    for name, moves in moved.items():
        is_vector = any(word in name for word in ("bias", "norm", "table"))
        assert moves == (decay == "all" or not is_vector), name
    assert any(moved.values())


def xla_flops(config: Config) -> tuple[float, float]:
    """XLA's count of operations, for the loss of one batch and for its gradient."""
    key, masks = jax.random.key(0), mask_rows(config.task.support.masks).rows
    size = (config.task.episode_length, config.optimizer.batch_size)
    arrays, rest = eqx.partition(eqx.filter_eval_shape(init_state, config).model, lambda leaf: hasattr(leaf, "shape"))
    episodes = jax.eval_shape(lambda: sample_episodes(key, config_teacher(config), masks, *size, 0))

    def loss(arrays: Any, episodes: Any) -> jax.Array:
        return query_loss(eqx.combine(arrays, rest), episodes, config.compute)

    programs = (jax.jit(function).lower(arrays, episodes).compile() for function in (loss, jax.grad(loss)))
    forward, gradient = (program.cost_analysis()["flops"] for program in programs)
    return forward, gradient


CASES = [("transformer", 2, 128), ("transformer", 3, 16), ("hypertransformer", 1, 16), ("hypertransformer", 2, 32)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "layers", "length"), CASES)
def test_against_xla(kind: ModelKind, layers: int, length: int) -> None:
    changes = {"model": {"num_layers": layers}, "task": {"episode_length": length}, "optimizer": {"batch_size": 16}}
    config = override(preset_config("paper", kind), changes)
    forward, gradient = xla_flops(config)
    assert forward_flops(config) == pytest.approx(forward, rel=0.07)
    assert step_flops(config) == pytest.approx(gradient, rel=0.07)


@pytest.mark.slow
def test_the_batch_is_counted_once_for_each_episode() -> None:
    """Doubling the batch doubles the work, except for products of weights with weights."""
    config = preset_config("paper", "transformer")
    twice = override(config, {"optimizer": {"batch_size": 256}})
    assert forward_flops(twice) == pytest.approx(2 * forward_flops(config), rel=0.01)
    assert forward_flops(twice) < 2 * forward_flops(config)


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
