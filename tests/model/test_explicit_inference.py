"""Explicit inference while training, and dropout."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf

from recombine.config.preset import preset_config
from recombine.config.schema import ComputeConfig, Config
from recombine.config.toml import override
from recombine.errors import InputError
from recombine.measure.latent.explicit_inference import improve_latent
from recombine.model.build import build_model
from recombine.model.forward import takes_key
from recombine.model.hypertransformer import Hypertransformer
from recombine.model.layer.generated import solve_positive
from recombine.task.sample import sample_split
from recombine.task.teacher import config_teacher
from recombine.train.loop import train
from recombine.train.step import State, config_tasks, init_state, query_loss

READINGS = [{}, {"base_weights": True}, {"unit_norm": True, "scaled_forward": True}, {"latent_dim": 13}]


def make(steps: int, model: dict | None = None, output_dim: int = 1) -> tuple[Hypertransformer, jax.Array, jax.Array]:
    """A model with every parameter away from its initial value, and the context of one episode, in float64."""
    changes = {"model": {"inference_steps": steps, **(model or {})}, "task": {"output_dim": output_dim}}
    config = override(preset_config("smoke", "hypertransformer"), changes)
    built = build_model(config, key=jax.random.key(0))
    keys = iter(jax.random.split(jax.random.key(1), 500))
    moved = jax.tree.map(lambda leaf: leaf + 0.1 * jax.random.normal(next(keys), leaf.shape), built)
    _, episodes = sample_split(0, "train", config_teacher(config), config.task.support, 20, 3)
    widen = lambda array: jnp.asarray(array, jnp.float64)  # noqa: E731
    return jax.tree.map(widen, moved), widen(episodes.context_x[0]), widen(episodes.context_y[0])


def by_automatic_differentiation(model: Hypertransformer, z: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """The steps from their definition: the Jacobian and the solution are JAX's own."""
    for log_damping in model.log_damping:

        def predict(z: jax.Array) -> jax.Array:
            return jax.vmap(model.execute, in_axes=(None, 0))(z, x).ravel()

        J = jax.jacfwd(predict)(z)
        A = J.T @ J
        A = A + jnp.exp(log_damping) * jnp.trace(A) / len(A) * jnp.eye(len(A))
        z = z + jnp.linalg.solve(A, J.T @ (y.ravel() - predict(z)))
    return z


CASES = [*((reading, 1) for reading in READINGS), ({"base_weights": True, "unit_norm": True}, 3)]


@pytest.mark.parametrize(("reading", "output_dim"), CASES, ids=str)
def test_the_steps_and_their_gradients(reading: dict, output_dim: int) -> None:
    with jax.enable_x64(True):
        model, x, y = make(2, reading, output_dim)
        z = jnp.linspace(-1.0, 1.5, model.theta.shape[0])

        def objective(infer):
            return lambda model, z, x, y: (jnp.sin(jnp.arange(len(z))) * infer(model, z, x, y)).sum()

        of_model = objective(lambda model, z, x, y: model.infer(z, x, y))
        of_definition = objective(by_automatic_differentiation)
        ours, expected = (
            jax.jit(jax.value_and_grad(function, argnums=(0, 1, 2, 3), allow_int=True))(model, z, x, y)
            for function in (of_model, of_definition)
        )
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


def test_the_latent_of_a_linear_layer_is_ridge_regression() -> None:
    """With hidden units far in GELU's linear range, labels are linear in the latent: one step is ridge, by NumPy."""
    with jax.enable_x64(True):
        model, x, y = make(1, {"base_weights": True})
        shift = jnp.zeros_like(model.base).at[:, 0].set(50.0)
        x = x.at[:, 0].set(1.0)  # the base weights then add 50 to every hidden unit
        model = eqx.tree_at(lambda m: (m.base, m.readout.bias), model, (shift, jnp.zeros(1)))
        found = model.infer(jnp.zeros(model.theta.shape[0]), x, y)
        features = np.einsum("h,mhd,nd->nm", model.readout.weight[:, 0], model.theta, x)
        rest = np.asarray(y) - 50.0 * float(model.readout.weight.sum())
        normal = features.T @ features
        ridge = np.exp(float(model.log_damping[0])) * np.trace(normal) / len(normal)
        expected = np.linalg.solve(normal + ridge * np.eye(len(normal)), features.T @ rest)
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_enough_steps_solve_a_task_that_the_modules_can_express() -> None:
    with jax.enable_x64(True):
        model, x, _ = make(20)
        model = eqx.tree_at(lambda m: m.log_damping, model, jnp.full(20, np.log(1e-3)))
        true = jnp.linspace(0.2, 1.2, model.theta.shape[0])
        y = jax.vmap(model.execute, in_axes=(None, 0))(true, x)
        found = model.infer(true + 0.3, x, y)
        labels = jax.vmap(model.execute, in_axes=(None, 0))(found, x)
        np.testing.assert_allclose(labels, y, atol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 6, 20])
def test_the_solution_of_a_positive_system(size: int) -> None:
    rng = np.random.default_rng(size)
    half, b = rng.normal(size=(5, size + 2, size)), rng.normal(size=(5, size))
    A = np.einsum("bni,bnj->bij", half, half) + 0.1 * np.eye(size)
    with jax.enable_x64(True):
        found = jax.vmap(solve_positive)(jnp.asarray(A), jnp.asarray(b))
    np.testing.assert_allclose(found, np.linalg.solve(A, b[..., None])[..., 0], rtol=1e-9)


def test_no_steps_is_the_papers_model() -> None:
    base = preset_config("smoke", "hypertransformer")
    model, other = (
        build_model(override(base, {"model": {"inference_steps": steps}}), key=jax.random.key(0)) for steps in (0, 2)
    )
    assert len(jax.tree.leaves(other)) == len(jax.tree.leaves(model)) + 1  # the damping, and nothing else
    np.testing.assert_array_equal(model.theta, other.theta)
    z = jnp.ones(model.theta.shape[0])
    np.testing.assert_array_equal(model.infer(z, jnp.ones((4, 16)), jnp.ones(4)), z)


def test_a_layer_that_generates_nothing_leaves_the_latent() -> None:
    """A latent without any effect has a Jacobian of zeros: no division by zero, also in the gradient."""
    config = override(preset_config("smoke", "hypertransformer"), {"model": {"inference_steps": 1}})
    model = build_model(config, key=jax.random.key(0))
    model = eqx.tree_at(lambda m: m.theta, model, jnp.zeros_like(model.theta))
    _, episodes = sample_split(0, "train", config_teacher(config), config.task.support, 8, 4)
    loss, gradient = eqx.filter_jit(eqx.filter_value_and_grad(query_loss))(model, episodes, ComputeConfig())
    assert np.isfinite(loss)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("steps", [-1, 1.0, True, 101])
def test_bad_steps(steps) -> None:
    with pytest.raises(InputError, match=r"model\.inference_steps"):
        override(preset_config("smoke", "hypertransformer"), {"model": {"inference_steps": steps}})


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


@pytest.mark.parametrize("reading", [{}, {"unit_norm": True, "scaled_forward": True}], ids=str)
def test_a_step_on_vector_labels_is_the_dense_one(reading: dict) -> None:
    """Gauss–Newton in NumPy: the Jacobian by central differences, a row for each output of each example."""
    with jax.enable_x64(True):
        model, x, y = make(1, reading, output_dim=3)
        assert y.shape == (len(x), 3)
        theta, readout, bias = (np.asarray(a) for a in (model.theta, model.readout.weight, model.readout.bias))

        def predict(z: np.ndarray) -> np.ndarray:
            W = np.einsum("m,mhd->hd", z, theta) * model.forward_scale
            u = np.asarray(x) @ (W / np.linalg.svd(W, compute_uv=False)[0] if model.unit_norm else W).T
            return (u * (1 + erf(u / np.sqrt(2))) / 2 @ readout + bias).ravel()

        z, small = np.linspace(-1.0, 1.5, len(theta)), 1e-6
        J = np.stack([(predict(z + small * e) - predict(z - small * e)) / (2 * small) for e in np.eye(len(z))], axis=1)
        damping = np.exp(float(model.log_damping[0])) * np.trace(J.T @ J) / len(z)
        expected = z + np.linalg.solve(J.T @ J + damping * np.eye(len(z)), J.T @ (np.ravel(y) - predict(z)))
        np.testing.assert_allclose(model.infer(jnp.asarray(z), x, y), expected, rtol=1e-6, atol=1e-7)


def test_test_time_steps_on_vector_labels_solve_a_task_that_the_modules_can_express() -> None:
    with jax.enable_x64(True):
        model, x, _ = make(0, output_dim=3)
        true = jnp.linspace(0.2, 1.2, model.theta.shape[0])
        y = jax.vmap(model.execute, in_axes=(None, 0))(true, x)
        latents = improve_latent(model, true + 0.3, x, y, 30)
        labels = jax.vmap(model.execute, in_axes=(None, 0))(latents[-1], x)
        np.testing.assert_allclose(labels, y, atol=1e-5)
        assert float(jnp.abs(jax.vmap(model.execute, in_axes=(None, 0))(latents[0], x) - y).max()) > 1e-2
