"""Tables 2 and 3: AdamW, cosine annealing, clipping; against the update written out in NumPy."""

from math import cos, pi

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recombine.config.preset import preset_config
from recombine.config.schema import OptimizerConfig
from recombine.model.build import build_model
from recombine.train.optimizer import learning_rate, make_optimizer


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
