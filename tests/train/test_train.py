"""Training: golden first losses, determinism, many seeds, the gradient, divergence, dreaming."""

import itertools
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import recombine.train.step as step_module
from recombine.config.preset import preset_config
from recombine.config.schema import Config
from recombine.config.toml import override
from recombine.model.hypertransformer import Hypertransformer
from recombine.model.weights import named_arrays
from recombine.task.sample import sample_split
from recombine.task.teacher import config_teacher
from recombine.train.dream import dream, mix_latents, sample_dreams
from recombine.train.loop import NonFiniteLoss, many_steps, train
from recombine.train.step import compiled_part, config_tasks, init_state, query_loss, train_step

# The losses of steps 0 to 2 of the `smoke` preset, seed 0. They change only when the data, the models, their
# initialisation or the optimiser do: then, and with a line in the changelog, put the new ones here.
GOLDEN = {
    "transformer": [0.816098, 0.598704, 0.662172],
    "hypertransformer": [0.63297, 0.714012, 0.29076],
}


KINDS = ["transformer", pytest.param("hypertransformer", marks=pytest.mark.slow)]


@pytest.mark.parametrize("kind", GOLDEN)
def test_golden_losses(kind) -> None:
    config = preset_config("smoke", kind)
    losses = np.concatenate([s.losses for s in train(config, config_tasks(config), init_state(config), 0, 3, last=3)])
    np.testing.assert_allclose(losses, GOLDEN[kind], rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_same_config_same_bits(kind) -> None:
    """The bits do not depend on how the steps are cut into dispatches."""
    config = preset_config("smoke", kind)
    tasks = config_tasks(config)
    runs = [list(train(config, tasks, init_state(config), 0, every)) for every in (20, 20, 8, 1)]
    losses = [np.concatenate([snapshot.losses for snapshot in run]) for run in runs]
    assert [snapshot.step for snapshot in runs[3]] == list(range(1, 41))
    assert {8, 16, 24, 32, 40} <= {snapshot.step for snapshot in runs[2]}
    for run, loss in zip(runs[1:], losses[1:], strict=True):
        np.testing.assert_array_equal(loss, losses[0])
        assert_same_state(run[-1].state, runs[0][-1].state)


@pytest.mark.parametrize("kind", KINDS)
def test_going_on_from_a_state(kind) -> None:
    config = preset_config("smoke", kind)
    tasks = config_tasks(config)
    *_, whole = train(config, tasks, init_state(config), 0, 40)
    *_, half = train(config, tasks, init_state(config), 0, 40, last=17)
    assert half.step == 17
    *_, resumed = train(config, tasks, half.state, half.step, 40)
    assert_same_state(resumed.state, whole.state)


@pytest.mark.parametrize("kind", KINDS)
def test_many_seeds_in_one_program(kind) -> None:
    """With `vmap` over seeds, each seed ends as it does alone."""
    config = override(preset_config("smoke", kind), {"optimizer": {"num_steps": 12}})
    configs = [override(config, {"seed": seed}) for seed in (0, 1, 2)]
    alone = [list(train(c, config_tasks(c), init_state(c), 0, 12))[-1].state for c in configs]
    stack = lambda trees: jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)  # noqa: E731
    tasks = stack([config_tasks(c) for c in configs])
    states = stack([init_state(c) for c in configs])
    run = eqx.filter_jit(
        eqx.filter_vmap(partial(many_steps, compiled_part(config)), in_axes=(eqx.if_array(0),) * 3 + (None,) * 2)
    )
    together = run(jnp.arange(3, dtype=jnp.uint32), tasks, states, jnp.asarray(0), jnp.asarray(12))
    assert together.done.tolist() == [12] * 3
    for i, state in enumerate(alone):
        for a, b in zip(jax.tree.leaves(state.model), jax.tree.leaves(together.state.model), strict=True):
            np.testing.assert_allclose(a, b[i], rtol=2e-3, atol=2e-5)


def test_one_program_for_all_seeds() -> None:
    """The compiled program does not depend on seeds, the support or the measurements."""
    config = preset_config("smoke", "transformer")
    others = [override(config, {"seed": 3, "teacher_seed": 4}), override(config, {"measure": {"episodes": 7}})]
    others.append(override(config, {"task": {"support": "disconnected"}}))
    assert {tuple(leaf.shape for leaf in jax.tree.leaves(config_tasks(c))) for c in others} == {
        tuple(leaf.shape for leaf in jax.tree.leaves(config_tasks(config)))
    }
    assert {compiled_part(c) for c in (config, *others)} == {compiled_part(config)}
    assert compiled_part(override(config, {"optimizer": {"learning_rate": 0.1}})) != compiled_part(config)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("transformer", "fast"),
        pytest.param("hypertransformer", "fast", marks=pytest.mark.slow),
        pytest.param("transformer", "plain", marks=pytest.mark.slow),
        ("hypertransformer", "plain"),
    ],
)
@pytest.mark.slow
def test_bfloat16_trains_and_keeps_its_state_in_float32(kind: str, path: str) -> None:
    config = override(preset_config("smoke", kind), {"compute": {"precision": "bfloat16", "path": path}})
    first, *_, last = train(config, config_tasks(config), init_state(config), 0, 3, last=3)
    assert {leaf.dtype for leaf in jax.tree.leaves(last.state)} == {np.dtype("float32"), np.dtype("int32")}
    np.testing.assert_allclose(first.losses[0], GOLDEN[kind][0], rtol=0.03)
    assert abs(first.losses[0] / GOLDEN[kind][0] - 1) > 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_in_pieces_has_the_gradient_of_the_whole(kind, monkeypatch: pytest.MonkeyPatch) -> None:
    config = preset_config("smoke", kind)
    state = init_state(config)
    _, episodes = sample_split(config.seed, "train", config_teacher(config), config.task.support, 8, 16, step=0)
    loss, gradient = eqx.filter_jit(eqx.filter_value_and_grad(query_loss))(state.model, episodes)
    for tokens, pieces in ((16 * 8, 1), (4 * 8, 4), (2 * 8, 8)):
        monkeypatch.setattr(step_module, "NUMBERS_AT_ONCE", tokens * 16)
        assert step_module._num_pieces(16, 8 * 16) == pieces
        # A function of its own each time: the number of pieces is read while it is compiled.
        in_pieces = eqx.filter_jit(lambda *inputs: step_module._loss_and_gradient(config, *inputs))
        found_loss, found = in_pieces(state.model, episodes)
        np.testing.assert_allclose(found_loss, loss, rtol=1e-5)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(gradient), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_pieces_are_few_and_equal() -> None:
    for batch, length in itertools.product((1, 2, 16, 64, 96, 127, 128, 254), (2, 8, 32, 128, 4096)):
        pieces, size = step_module._num_pieces(batch, length * 64), length * 64
        assert batch % pieces == 0
        assert pieces == 1 or batch // pieces * size <= step_module.NUMBERS_AT_ONCE or length > 2048
        assert pieces == 1 or 4 * (batch // pieces) * size >= step_module.NUMBERS_AT_ONCE
    assert step_module._num_pieces(127, 128 * 64) == 1, "a prime number of episodes is not taken one by one"


def assert_same_state(state, other) -> None:
    for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_the_mse_at_the_query_and_falls(kind) -> None:
    config = override(preset_config("smoke", kind), {"optimizer": {"num_steps": 300, "learning_rate": 0.003}})
    tasks = config_tasks(config)
    state = init_state(config)
    _, episodes = sample_split(config.seed, "train", tasks.teacher, config.task.support, 8, 16, step=0)
    loss = one_step(config, state).loss
    predicted = eqx.filter_jit(jax.vmap(state.model))(episodes.context_x, episodes.context_y, episodes.query_x).y
    np.testing.assert_allclose(loss, np.mean((predicted - episodes.query_y) ** 2), rtol=1e-5)
    losses = np.concatenate([snapshot.losses for snapshot in train(config, tasks, state, 0, 100)])
    assert losses[-50:].mean() < 0.7 * losses[:50].mean()


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_against_finite_differences(kind) -> None:
    config = preset_config("smoke", kind)
    with jax.enable_x64(True):
        state = init_state(config)
        widen = lambda tree: jax.tree.map(lambda a: a.astype(jnp.float64) if eqx.is_inexact_array(a) else a, tree)  # noqa: E731
        model = widen(state.model)
        _, episodes = sample_split(0, "train", config_teacher(config), config.task.support, 8, 4)
        episodes = widen(episodes)
        gradient = eqx.filter_jit(eqx.filter_grad(query_loss))(model, episodes)
        keys = iter(jax.random.split(jax.random.key(1), 100))
        direction = jax.tree.map(lambda leaf: jax.random.normal(next(keys), leaf.shape, leaf.dtype), model)
        slope = sum(jnp.sum(g * d) for g, d in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True))
        loss = eqx.filter_jit(query_loss)
        ahead, behind = (
            loss(jax.tree.map(lambda p, d, e=e: p + e * d, model, direction), episodes) for e in (1e-6, -1e-6)
        )
        np.testing.assert_allclose((ahead - behind) / 2e-6, slope, rtol=1e-5)


def test_divergence_stops_before_the_update() -> None:
    config = override(preset_config("smoke", "transformer"), {"optimizer": {"learning_rate": 1e20}})
    snapshots = []
    with pytest.raises(NonFiniteLoss, match=r"step \d+ was not taken") as caught:
        snapshots.extend(train(config, config_tasks(config), init_state(config), 0, 10))
    assert str(caught.value).startswith(f"step {snapshots[-1].step} was not taken")
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(snapshots[-1].state))


def test_a_gradient_that_is_not_finite_is_not_applied() -> None:
    """A loss near the largest float32 is finite, but the norm of its gradient is not."""
    config = preset_config("smoke", "transformer")
    huge = eqx.tree_at(lambda s: s.model.readout.bias, init_state(config), jnp.full(1, 4e18))
    result = one_step(config, huge)
    assert np.isfinite(result.loss)
    assert not result.finite
    assert_same_state(result.state, huge)


def one_step(config, state):
    step = eqx.filter_jit(train_step)
    return step(config, jnp.uint32(config.seed), config_tasks(config), state, jnp.asarray(0))


def dreaming(share: float, **model) -> Config:
    decay = {"weight_decay": 0.1, "decay": "all"}  # which the fixed parameters must not have either
    changes = {"model": model, "optimizer": decay, "train": {"start_from": "any run", "dream": share}}
    return override(preset_config("smoke", "hypertransformer"), changes)


@pytest.mark.parametrize("share", [pytest.param(0.0, marks=pytest.mark.slow), 0.5])
def test_dreaming_trains_the_encoder_alone(share: float) -> None:
    config = dreaming(share, base_weights=True, inference_steps=1)
    before = init_state(config)
    *_, after = train(config, config_tasks(config), before, 0, 3, last=3)
    old, new = named_arrays(before.model), named_arrays(after.state.model)
    fixed = {name for name in old if np.array_equal(old[name], new[name])}
    fixed -= {name for name in old if name.endswith("key.bias")}  # softmax ignores it, and so has it no gradient
    assert fixed == {"theta", "base", "readout.weight", "readout.bias"}


@pytest.mark.parametrize("output_dim", [1, 3])
def test_dreamed_labels_are_the_models_own(output_dim: int) -> None:
    """Half of the batch has the labels of a mixture of two inferred latents; the rest is as it was."""
    config = override(dreaming(0.5), {"task": {"label_noise": 0.0, "output_dim": output_dim}})
    (teacher, (rows, count)), model = config_tasks(config), init_state(config).model
    assert isinstance(model, Hypertransformer)
    _, episodes = sample_split(0, "train", teacher, config.task.support, 8, 16)
    dreams = sample_dreams(jax.random.key(0), config, teacher, rows, count, 16, 0)
    dreamed = eqx.filter_jit(dream)(config, model, teacher, episodes, dreams)
    for name in ("context_x", "query_x"):
        np.testing.assert_array_equal(getattr(dreamed, name), getattr(episodes, name))
    np.testing.assert_array_equal(dreamed.context_y[8:], episodes.context_y[8:])
    np.testing.assert_array_equal(dreamed.query_y[8:], episodes.query_y[8:])
    one, other = (jax.vmap(model)(*part.shown()).trace.latent for part in (episodes, dreams.others))
    label = jax.jit(jax.vmap(model.execute, in_axes=(None, 0)))
    for i in range(8):
        y = np.concatenate([dreamed.context_y[i], dreamed.query_y[i][None]])
        x = jnp.concatenate([dreamed.context_x[i], dreamed.query_x[i][None]])
        z = mix_latents(jax.random.split(dreams.keys[i])[0], one[i], other[i], model.theta)
        np.testing.assert_allclose(y, label(z, x), rtol=1e-3, atol=1e-5)
        assert np.abs(y - np.concatenate([episodes.context_y[i], episodes.query_y[i][None]])).max() > 1e-2


def test_a_mixed_latent_is_as_large_as_the_first() -> None:
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(6, 3, 4)).astype(np.float32)
    one, other = rng.normal(size=(2, 6)).astype(np.float32)
    mixed = np.stack([mix_latents(jax.random.key(i), *map(jnp.asarray, (one, other, theta))) for i in range(40)])
    size = lambda z: np.linalg.norm(np.tensordot(z, theta, axes=1), axis=(-2, -1))  # noqa: E731
    np.testing.assert_allclose(size(mixed), size(one), rtol=1e-4)
    weights, distance, *_ = np.linalg.lstsq(np.stack([one, other]).T, mixed.T, rcond=None)
    assert distance.max() < 1e-8
    assert (weights > -1e-6).all()
    share = weights[0] * size(one) / (weights[0] * size(one) + weights[1] * size(other))
    assert share.min() < 0.2
    assert share.max() > 0.8
    assert len(np.unique(mixed.round(4), axis=0)) == 40


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
