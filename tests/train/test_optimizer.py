"""Tables 2 and 3: AdamW, cosine annealing, clipping; against the update written out in NumPy."""

from math import cos, pi

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recombine.config import OptimizerConfig
from recombine.model.build import build_model
from recombine.preset import preset_config
from recombine.train.optimizer import learning_rate, make_optimizer


def test_cosine_to_zero() -> None:
    schedule = learning_rate(OptimizerConfig(num_steps=1000, learning_rate=0.003))
    for step in (0, 1, 250, 500, 999, 1000):
        np.testing.assert_allclose(schedule(step), 0.003 * (1 + cos(pi * step / 1000)) / 2, rtol=1e-5, atol=1e-9)


def test_warm_up_and_end() -> None:
    schedule = learning_rate(OptimizerConfig(num_steps=1000, warmup_steps=100, final_fraction=0.1))
    np.testing.assert_allclose([schedule(s) for s in (0, 50, 100, 1000)], [0, 5e-4, 1e-3, 1e-4], rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("size", [0.01, 10.0], ids=["within the clip", "clipped"])
def test_two_steps_by_hand(size: float) -> None:
    config = OptimizerConfig(num_steps=10, learning_rate=0.01, weight_decay=0.1, clip_norm=1.0)
    optimizer = make_optimizer(config)

    model = build_model(preset_config("smoke", "transformer"), key=jax.random.key(0))
    parameters = model.readout
    state = optimizer.init(parameters)
    W, b = np.asarray(parameters.weight, float), np.asarray(parameters.bias, float)
    gradient = jax.tree.map(lambda p: size * jnp.arange(1.0, p.size + 1).reshape(p.shape), parameters)
    moments = {"W": (0.0, 0.0), "b": (0.0, 0.0)}
    for t in (1, 2):
        updates, state = optimizer.update(gradient, state, parameters)
        parameters = jax.tree.map(lambda p, u: p + u, parameters, updates)
        norm = np.sqrt(sum(float((g**2).sum()) for g in jax.tree.leaves(gradient)))
        factor = min(1.0, 1.0 / norm)
        rate = 0.01 * (1 + cos(pi * (t - 1) / 10)) / 2
        new = {}
        for name, value, g, decay in (("W", W, gradient.weight, 0.1), ("b", b, gradient.bias, 0.0)):
            g = np.asarray(g, float) * factor
            m, v = 0.9 * moments[name][0] + 0.1 * g, 0.999 * moments[name][1] + 0.001 * g**2
            moments[name] = (m, v)
            step = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
            new[name] = value - rate * (step + decay * value)
        W, b = new["W"], new["b"]
        np.testing.assert_allclose(parameters.weight, W, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(parameters.bias, b, rtol=1e-4, atol=1e-6)


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
