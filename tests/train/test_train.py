"""Training: golden first losses, determinism, the gradient, divergence."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recombine.config_file import override
from recombine.preset import preset_config
from recombine.task.split import sample_split
from recombine.train.loop import NonFiniteLoss, train
from recombine.train.step import config_teacher, init_state, query_loss, train_step

# The losses of steps 0 to 2 of the `smoke` preset, seed 0. They change only when the data, the models, their
# initialisation or the optimiser do: then, and with a line in the changelog, put the new ones here.
GOLDEN = {
    "transformer": [0.816098, 0.598704, 0.662172],
    "hypertransformer": [0.63297, 0.714012, 0.29076],
}


@pytest.mark.parametrize("kind", GOLDEN)
def test_golden_losses(kind) -> None:
    config = preset_config("smoke", kind)
    snapshot = next(train(config, config_teacher(config), every=3))
    np.testing.assert_allclose(snapshot.losses, GOLDEN[kind], rtol=1e-4)


@pytest.mark.parametrize("kind", GOLDEN)
def test_same_config_same_bits(kind) -> None:
    """However the steps are cut into snapshots."""
    config = preset_config("smoke", kind)
    teacher = config_teacher(config)
    runs = [list(train(config, teacher, every)) for every in (20, 20, 8)]
    losses = [np.concatenate([snapshot.losses for snapshot in run]) for run in runs]
    assert [snapshot.step for snapshot in runs[2]] == [8, 16, 24, 32, 40]
    for run, loss in zip(runs[1:], losses[1:], strict=True):
        np.testing.assert_array_equal(loss, losses[0])
        for a, b in zip(jax.tree.leaves(run[-1].model), jax.tree.leaves(runs[0][-1].model), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", GOLDEN)
def test_the_loss_is_the_mse_at_the_query_and_falls(kind) -> None:
    config = override(preset_config("smoke", kind), {"optimizer": {"num_steps": 300, "learning_rate": 0.003}})
    teacher = config_teacher(config)
    state = init_state(config)
    _, episodes = sample_split(config.seed, "train", teacher, config.task.support, 8, 16, step=0)
    _, loss = train_step(config, teacher, state, jnp.asarray(0))
    predicted = jax.vmap(state.model)(episodes.context_x, episodes.context_y, episodes.query_x).y
    np.testing.assert_allclose(loss, np.mean((predicted - episodes.query_y) ** 2), rtol=1e-5)
    losses = np.concatenate([snapshot.losses for snapshot in train(config, teacher, 100)])
    assert losses[-50:].mean() < 0.7 * losses[:50].mean()


@pytest.mark.parametrize("kind", GOLDEN)
def test_the_gradient_against_finite_differences(kind) -> None:
    config = preset_config("smoke", kind)
    with jax.enable_x64(True):
        state = init_state(config)
        widen = lambda tree: jax.tree.map(lambda a: a.astype(jnp.float64) if eqx.is_inexact_array(a) else a, tree)  # noqa: E731
        model = widen(state.model)
        _, episodes = sample_split(0, "train", config_teacher(config), config.task.support, 8, 4)
        episodes = widen(episodes)
        gradient = eqx.filter_grad(query_loss)(model, episodes)
        keys = iter(jax.random.split(jax.random.key(1), 100))
        direction = jax.tree.map(lambda leaf: jax.random.normal(next(keys), leaf.shape, leaf.dtype), model)
        slope = sum(jnp.sum(g * d) for g, d in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True))
        ahead, behind = (
            query_loss(jax.tree.map(lambda p, d, e=e: p + e * d, model, direction), episodes) for e in (1e-6, -1e-6)
        )
        np.testing.assert_allclose((ahead - behind) / 2e-6, slope, rtol=1e-5)


def test_divergence_is_named() -> None:
    config = override(preset_config("smoke", "transformer"), {"optimizer": {"learning_rate": 1e20}})
    with pytest.raises(NonFiniteLoss, match=r"the loss of step \d+ is"):
        list(train(config, config_teacher(config), 10))


def test_seeds_differ_and_the_teacher_can_be_kept() -> None:
    config = preset_config("smoke", "transformer")
    other = override(config, {"seed": 1})
    kept = override(config, {"seed": 1, "teacher_seed": 0})
    same = lambda a, b: all(  # noqa: E731
        bool((x == y).all()) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )
    assert not same(config_teacher(config), config_teacher(other))
    assert same(config_teacher(config), config_teacher(kept))
    assert not same(init_state(config).model.readout.weight, init_state(kept).model.readout.weight)  # pyright: ignore
