"""Attention dropout: a share of the attention weights is 0 in a training step, the others are scaled up."""

import equinox as eqx
import jax
import numpy as np
import pytest

from recombine.config.preset import preset_config
from recombine.config.schema import Config
from recombine.config.toml import override
from recombine.errors import InputError
from recombine.model.build import build_model
from recombine.model.forward import takes_key
from recombine.task.sample import sample_split
from recombine.task.teacher import config_teacher
from recombine.train.loop import train
from recombine.train.step import State, config_tasks, init_state


def dropping(dropout: float) -> Config:
    return override(preset_config("smoke", "hypertransformer"), {"model": {"dropout": dropout}})


def test_a_share_is_dropped_and_the_mean_is_kept() -> None:
    """Factors are 0 or 1/(1 − p), with mean 1; other tokens, heads, blocks and keys draw independently."""
    trunk = build_model(dropping(0.2), key=jax.random.key(0)).trunk
    draw = eqx.filter_jit(lambda key, layer: jax.vmap(lambda k: trunk.kept_by_all(k, layer, 8))(key))
    keys = jax.random.split(jax.random.key(1), 500)
    first, second = (np.asarray(draw(keys, layer)) for layer in (0, 1))
    assert first.shape == (500, 4, 8, 8)
    np.testing.assert_allclose(np.unique(first), [0, 1.25])
    for values in (first, second):
        np.testing.assert_allclose(values.mean(axis=0), 1, atol=0.15)  # each weight by itself: 6 standard errors
        assert abs(values.mean() - 1) < 0.01
    flat = np.concatenate([first[:, :2, :3].reshape(500, -1), second[:, :2, :1].reshape(500, -1)], axis=1)
    off_diagonal = np.corrcoef(flat.T)[~np.eye(flat.shape[1], dtype=bool)]
    assert np.abs(off_diagonal).max() < 0.25
    assert trunk.kept_by_all(None, 0, 8) is None


def test_the_attention_weights_are_multiplied() -> None:
    """By NumPy: the output is the undropped pattern, times the factors, times the values."""
    attention = build_model(dropping(0.2), key=jax.random.key(0)).trunk.blocks[0].attention
    X = jax.random.normal(jax.random.key(1), (5, 16))
    kept = np.random.default_rng(0).choice([0, 1.25], (4, 5, 5))
    _, pattern = attention(X, None)
    found, dropped = attention(X, None, jax.numpy.asarray(kept, jax.numpy.float32))
    np.testing.assert_allclose(dropped, np.asarray(pattern) * kept, rtol=1e-6)
    v = np.asarray(attention.value(X)).reshape(5, 4, 4)
    gathered = np.einsum("hij,jhe->ihe", np.asarray(pattern) * kept, v).reshape(5, 16)
    expected = gathered @ np.asarray(attention.output.weight) + np.asarray(attention.output.bias)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_outside_training_nothing_is_dropped() -> None:
    """Without a key, the model with dropout is the model without, bit for bit. And only it is given keys."""
    config = dropping(0.3)
    with_dropout, without = (build_model(dropping(rate), key=jax.random.key(0)) for rate in (0.3, 0.0))
    assert (takes_key(with_dropout), takes_key(without)) == (True, False)
    _, e = sample_split(0, "ood", config_teacher(config), config.task.support, 8, 4)
    call = eqx.filter_jit(lambda model, x, y, q, key=None: jax.vmap(lambda *a: model(*a, key=key).y)(x, y, q))
    shown = e.shown()
    np.testing.assert_array_equal(call(with_dropout, *shown), call(without, *shown))
    np.testing.assert_array_equal(call(without, *shown, jax.random.key(3)), call(without, *shown))
    assert (call(with_dropout, *shown, jax.random.key(3)) != call(without, *shown)).all()


def test_what_is_dropped_depends_on_seed_and_step_alone() -> None:
    """Training in one go and in two parts gives the same bits; without dropout it gives others."""
    config = dropping(0.1)
    tasks = config_tasks(config)

    def after(state: State, step: int, last: int) -> State:
        return list(train(config, tasks, state, step, 40, last))[-1].state

    whole = after(init_state(config), 0, 12)
    parts = after(after(init_state(config), 0, 5), 5, 12)
    for one, other in zip(jax.tree.leaves(whole.model), jax.tree.leaves(parts.model), strict=True):
        np.testing.assert_array_equal(one, other)
    (*_, other) = train(dropping(0.0), tasks, init_state(dropping(0.0)), 0, 40, 12)
    assert (np.asarray(whole.model.theta) != np.asarray(other.state.model.theta)).any()


@pytest.mark.parametrize("value", [-0.1, 1.0, float("nan"), "0.1"])
def test_rates_that_are_none(value: object) -> None:
    with pytest.raises(InputError, match=r"model\.dropout"):
        override(dropping(0.0), {"model": {"dropout": value}})
