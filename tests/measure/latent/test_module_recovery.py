"""Module recovery and interventions, on models whose modules were constructed and are known."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from jaxtyping import Array

from recombine.config.preset import preset_config
from recombine.config.schema import Config
from recombine.config.toml import override
from recombine.measure.latent.interventions import (
    LatentMaps,
    in_random_subspace,
    intervene_on_latent,
    intervene_on_subspace,
    predict_changed,
    smallest_change,
)
from recombine.measure.latent.module_recovery import fit_map, recover_modules, scaled_latent
from recombine.measure.predict import forward, predict
from recombine.measure.probe import fit_probe
from recombine.measure.ridge import Ridge
from recombine.model.build import build_model
from recombine.model.interface import BatchOutput
from recombine.stream import Stream
from recombine.task.episode import Episode
from recombine.task.sample import sample_masks
from recombine.task.teacher import config_teacher

CONFIG = preset_config("smoke", "hypertransformer")
TEACHER = config_teacher(CONFIG)
SUPPORT = CONFIG.task.support
ROTATION = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]


@cache
def seen() -> Episode:
    return sample_masks(0, Stream.probe, TEACHER, SUPPORT.masks, 8, 500)


@cache
def held_out() -> Episode:
    return sample_masks(0, Stream.ood, TEACHER, SUPPORT.held_out, 8, 300)


@cache
def inputs() -> Array:
    return jax.random.normal(jax.random.key(3), (1000, 4))


def perfect_student(config: Config = CONFIG) -> eqx.Module:
    """A hypertransformer whose modules are the teacher's, seen through a rotation, in a wider hidden layer."""
    model, teacher = build_model(config, key=jax.random.key(0)), config_teacher(config)
    hidden = model.theta.shape[1]
    theta = jnp.einsum("mk,mhd->khd", jnp.asarray(ROTATION, jnp.float32), teacher.theta)
    wide = jnp.zeros((6, hidden, 4)).at[:, :4].set(theta)
    weight = jnp.zeros_like(model.readout.weight).at[:4].set(jnp.atleast_2d(teacher.a).T)
    readout = eqx.tree_at(lambda r: r.weight, model.readout, weight)
    return eqx.tree_at(lambda m: (m.theta, m.readout), model, (wide, readout))


def inferred(noise: float = 0.0, episodes: Episode | None = None) -> jnp.ndarray:
    v = np.asarray(scaled_latent(TEACHER, (episodes or seen()).latent), np.float64)
    draws = np.random.default_rng(1).normal(size=v.shape)
    return jnp.asarray((v + noise * draws * v.std()) @ ROTATION, jnp.float32)


def test_the_scaled_latent_is_what_the_labels_are_linear_in() -> None:
    v = np.asarray(scaled_latent(TEACHER, seen().latent), np.float64)
    W = np.einsum("em,mhd->ehd", v, np.asarray(TEACHER.theta, np.float64))
    np.testing.assert_allclose(np.linalg.norm(W, ord=2, axis=(1, 2)), 1, rtol=1e-5)


def test_perfect_modules_are_recovered() -> None:
    v = scaled_latent(TEACHER, seen().latent)
    recovery = recover_modules(perfect_student(), TEACHER, v, inferred(), inputs())
    assert recovery.map_r2 > 0.9999
    assert [(entry.module, entry.mask.index("1")) for entry in recovery.single] == [(i + 1, i) for i in range(6)]
    assert len(recovery.pairs) == 15
    for entry in (*recovery.single, *recovery.pairs):
        assert entry.r2 > 0.9999
        assert entry.ceiling > 0.9999


def test_a_students_own_zero_does_not_matter() -> None:
    """Adding an offset to the latent, and removing it in the student, does not change the result."""
    shift = jnp.arange(6.0)

    class Shifted(eqx.Module):
        inner: eqx.Module

        def __call__(self, context_x, context_y, query_x):
            return self.inner(context_x, context_y, query_x)

        def execute(self, z, x):
            return self.inner.execute(z - shift, x)

    v = scaled_latent(TEACHER, seen().latent)
    recovery = recover_modules(Shifted(perfect_student()), TEACHER, v, inferred() + shift, inputs())
    assert min(entry.r2 for entry in (*recovery.single, *recovery.pairs)) > 0.999
    assert recovery.map_r2 > 0.999


def test_wrong_modules_are_not() -> None:
    v = scaled_latent(TEACHER, seen().latent)
    student = eqx.tree_at(lambda m: m.theta, perfect_student(), replace_fn=lambda theta: jnp.roll(theta, 1, axis=0))
    recovery = recover_modules(student, TEACHER, v, inferred(), inputs())
    assert np.mean([entry.r2 for entry in recovery.single]) < 0.5
    assert min(entry.ceiling for entry in recovery.single) > 0.9999, "the ceiling is that of perfect modules"


def test_noisy_inference_lowers_the_ceiling_and_not_what_is_recovered_below_it() -> None:
    v = scaled_latent(TEACHER, seen().latent)
    recovery = recover_modules(perfect_student(), TEACHER, v, inferred(noise=1.0), inputs())
    ceilings = [entry.ceiling for entry in recovery.single]
    assert max(ceilings) < 0.999
    assert recovery.map_r2 < 0.8


def test_latent_interventions_of_a_perfect_student() -> None:
    student, noisy = perfect_student(), inferred(noise=0.5, episodes=held_out())
    v = scaled_latent(TEACHER, seen().latent)
    maps = LatentMaps(fit_map(v, inferred()), fit_map(inferred(), v))
    y = jax.vmap(student.execute)(noisy, held_out().query_x)
    found = intervene_on_latent(
        student, TEACHER, held_out(), BatchOutput(y, None, noisy), scaled_latent(TEACHER, held_out().latent), maps
    )
    assert found.true > 0.9999
    assert found.ceiling > 0.9999
    assert found.inferred < 0.99
    assert found.wrong < 0.5
    exact = inferred(episodes=held_out())
    y = jax.vmap(student.execute)(exact, held_out().query_x)
    found = intervene_on_latent(
        student, TEACHER, held_out(), BatchOutput(y, None, exact), scaled_latent(TEACHER, held_out().latent), maps
    )
    assert found.interpolated > 0.9999
    assert found.inferred > 0.9999


def test_the_smallest_change_makes_the_probe_read_the_target() -> None:
    rng = np.random.default_rng(0)
    stream, z = rng.normal(size=(50, 16)), rng.normal(size=(50, 6))
    probe = Ridge(rng.normal(size=(16, 6)), rng.normal(size=6))
    change = smallest_change(stream, probe, z)
    np.testing.assert_allclose((stream + change) @ probe.weights + probe.intercept, z, atol=1e-9)
    orthogonal = rng.normal(size=(50, 16))
    orthogonal -= orthogonal @ probe.weights @ np.linalg.pinv(probe.weights)
    assert (np.linalg.norm(change, axis=1) < np.linalg.norm(change + 1e-3 * orthogonal, axis=1)).all()
    turned = in_random_subspace(change, probe.weights, jax.random.key(0))
    np.testing.assert_allclose(np.linalg.norm(turned, axis=1), np.linalg.norm(change, axis=1), rtol=1e-9)
    assert np.linalg.matrix_rank(turned) == 6
    assert np.linalg.matrix_rank(np.concatenate([turned, change])) == 12, "another subspace"


def test_the_smallest_change_where_all_latents_have_one_sum() -> None:
    """The first entries of z determine the last, so the shortest change for the first entries is right for all."""
    model = build_model(preset_config("smoke", "transformer"), key=jax.random.key(0))
    probe = fit_probe(forward(model, seen()), seen().latent)
    assert probe is not None
    fit, z = probe.residual[2], np.asarray(held_out().latent, float)
    np.testing.assert_allclose(z.sum(axis=1), 1.5, atol=1e-6)
    stream = np.asarray(forward(model, held_out()).residual[:, 2], float)
    weights, intercept = np.asarray(fit.weights, float), np.asarray(fit.intercept, float)
    shortest = (z - stream @ weights - intercept)[:, :-1] @ np.linalg.pinv(weights[:, :-1])
    np.testing.assert_allclose(smallest_change(stream, fit, z), shortest, atol=1e-3)


def test_changing_the_stream_at_each_point() -> None:
    """A change of zero gives the model's prediction; after the last block, a change moves y by the readout's slope."""
    config = preset_config("smoke", "transformer")
    model = build_model(eqx_replace(config, final_norm=False), key=jax.random.key(0))
    plain = np.asarray(predict(model, held_out()))
    change = jax.random.normal(jax.random.key(1), (300, 16))
    for point in (0, 1, 2):
        np.testing.assert_allclose(predict_changed(model, held_out(), jnp.zeros((300, 16)), point), plain, atol=1e-5)
        assert np.abs(np.asarray(predict_changed(model, held_out(), change, point)) - plain).max() > 0.1
    moved = np.asarray(predict_changed(model, held_out(), change, 2))
    np.testing.assert_allclose(moved - plain, np.asarray(change) @ np.asarray(model.readout.weight)[:, 0], atol=1e-4)


def eqx_replace(config, **model):
    from recombine.config.toml import override

    return override(config, {"model": model})


def test_setting_the_subspace_of_the_last_stream() -> None:
    """Without a final norm the read-out is linear in the last stream, so the effect of an intervention is known."""
    config = eqx_replace(preset_config("smoke", "transformer"), final_norm=False)
    model = build_model(config, key=jax.random.key(0))
    output = forward(model, seen())
    probe = fit_probe(output, seen().latent)
    assert probe is not None
    ood = held_out()
    found = intervene_on_subspace(model, ood, forward(model, ood), probe.residual[2], 2, jax.random.key(0))
    stream = np.asarray(forward(model, ood).residual[:, 2], float)
    change = smallest_change(stream, probe.residual[2], np.asarray(ood.latent, float))
    y = np.asarray(forward(model, held_out()).y, float) + change @ np.asarray(model.readout.weight, float)[:, 0]
    query, mean = np.asarray(held_out().query_y, float), np.asarray(held_out().context_y, float).mean(axis=1)
    assert found.true == pytest.approx(1 - np.sum((query - y) ** 2) / np.sum((query - mean) ** 2), abs=1e-4)
    assert len({round(value, 6) for value in msgspec.structs.astuple(found)}) == 4


def test_a_student_with_vector_labels_has_the_modules() -> None:
    config = override(CONFIG, {"task": {"output_dim": 3}})
    teacher, student = config_teacher(config), perfect_student(config)
    v = scaled_latent(teacher, seen().latent)
    z = jnp.asarray(np.asarray(v, np.float64) @ ROTATION, jnp.float32)
    found = recover_modules(student, teacher, v, z, inputs())
    assert min(one.r2 for one in (*found.single, *found.pairs)) > 1 - 1e-5
    other = eqx.tree_at(lambda m: m.readout.weight, student, replace_fn=lambda W: W[:, ::-1])  # outputs exchanged
    assert max(one.r2 for one in recover_modules(other, teacher, v, z, inputs()).single) < 0.9
