"""Explicit inference at test time, on a model whose modules are the teacher's, and against SciPy."""

from functools import cache
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import least_squares
from scipy.stats import norm

from recombine.config.preset import preset_config
from recombine.config.toml import override
from recombine.measure.evaluated import EvaluatedModel
from recombine.measure.latent.explicit_inference import (
    ExplicitInference,
    improve_latent,
    infer_explicitly,
    measure_explicit_inference,
)
from recombine.measure.novel import novel_tasks, score_novel
from recombine.model.build import build_model
from recombine.stream import Stream
from recombine.task.episode import Episode
from recombine.task.sample import sample_masks
from recombine.task.teacher import config_teacher
from tests.measure.latent.test_module_recovery import CONFIG, SUPPORT, TEACHER, perfect_student


@cache
def with_the_modules() -> eqx.Module:
    return perfect_student()


@cache
def long() -> Episode:
    return sample_masks(0, Stream.ood, TEACHER, SUPPORT.held_out, 24, 60)


def error_of(z: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    W = np.einsum("m,mhd->hd", z, np.asarray(with_the_modules().theta, float))
    hidden = x @ W.T
    return hidden * norm.cdf(hidden) @ np.asarray(with_the_modules().readout.weight[:, 0], float) - y


def test_it_finds_what_scipy_finds() -> None:
    x, y = np.asarray(long().context_x[0], float), np.asarray(long().context_y[0], float)
    y = y + 0.05 * np.random.default_rng(0).normal(size=len(y))  # no latent fits exactly
    best = least_squares(error_of, np.zeros(6), args=(x, y), method="lm")
    latents = improve_latent(
        with_the_modules(), jnp.zeros(6), jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32), 30
    )
    losses = [np.sum(error_of(np.asarray(z, float), x, y) ** 2) for z in latents]
    assert all(after <= before * (1 + 1e-5) for before, after in pairwise(losses))
    assert losses[0] > 1.2 * losses[-1]
    assert losses[-1] == pytest.approx(2 * best.cost, rel=1e-3)


def test_modules_that_can_express_a_task_solve_it_from_zero() -> None:
    found = infer_explicitly(with_the_modules(), jnp.zeros((60, 6)), long(), 10)
    assert found.latent.shape == (60, 11, 6)
    np.testing.assert_array_equal(found.latent[:, 0], 0)
    error = np.mean((np.asarray(found.y) - np.asarray(long().query_y)[:, None]) ** 2, axis=0)
    assert error[-1] < 1e-3 * error[0]


class Perfect(eqx.Module):
    """A student that infers nothing: its own latent is the same for every context."""

    inner: eqx.Module
    latent: jax.Array

    def __call__(self, context_x, context_y, query_x):
        output = self.inner(context_x, context_y, query_x)
        trace = eqx.tree_at(lambda t: t.latent, output.trace, self.latent)
        return output._replace(y=self.inner.execute(self.latent, query_x), trace=trace)

    def execute(self, z, x):
        return self.inner.execute(z, x)


def test_the_scores_of_a_model_that_executes_and_does_not_infer() -> None:
    config = override(CONFIG, {"task": {"episode_length": 24}, "measure": {"episodes": 48}})
    student = Perfect(with_the_modules(), jnp.full(6, 0.2))
    found = measure_explicit_inference(EvaluatedModel(config, student), 8)
    assert isinstance(found, ExplicitInference)
    assert found.steps == 8
    assert found.zero is not None
    for start in (found.own, found.zero):
        assert start.by_step[0] < 0.5
        assert start.ood is not None
        assert start.novel is not None
        assert start.by_step[-1] == start.ood.r2
        assert len(start.by_step) == 9
        # Some contexts end in a local minimum: the layer is small.
        assert min(start.in_dist.r2, start.ood.r2) > 0.9
        assert list(start.active_modules) == ["1", "2", "3", "4", "5", "6"]
        assert min(score.r2 for score in start.active_modules.values()) > 0.5
        assert max(start.control.r2, start.control_modules.r2) < 0.8  # other modules than its own
    assert found.own.by_step[0] != found.zero.by_step[0]
    tasks = novel_tasks(config, TEACHER)  # here with an inference for each query, there with one for each context
    y = infer_explicitly(student, jnp.zeros((len(tasks.episodes.query_y), 6)), tasks.episodes, 8).y[:, -1]
    expected = score_novel(y, tasks, tasks.span)
    assert (found.zero.novel.r2, found.zero.novel.slope) == pytest.approx((expected.r2, expected.slope), rel=1e-3)
    assert found.zero.novel.r2 > 0.5


def test_a_layer_of_unit_norm_cannot_start_from_zero() -> None:
    changes = {"model": {"unit_norm": True}, "measure": {"episodes": 20}}
    config = override(preset_config("smoke", "hypertransformer"), changes)
    model = build_model(config, key=jax.random.key(0))
    found = measure_explicit_inference(EvaluatedModel(config, model), 1)
    assert found is not None
    assert found.zero is None
    assert np.isfinite(found.own.by_step).all()


def test_a_transformer_has_no_latent() -> None:
    config = override(preset_config("smoke", "transformer"), {"measure": {"episodes": 4}})
    model = build_model(config, key=jax.random.key(0))
    assert measure_explicit_inference(EvaluatedModel(config, model)) is None


def test_the_scores_of_vector_labels() -> None:
    """With all three outputs the student's latents are found from zero. The novel part: an inference for each query."""
    config = override(CONFIG, {"task": {"episode_length": 16, "output_dim": 3}, "measure": {"episodes": 24}})
    student = Perfect(perfect_student(config), jnp.full(6, 0.2))
    found = measure_explicit_inference(EvaluatedModel(config, student), 6)
    assert found is not None
    zero = found.zero
    assert min(zero.in_dist.r2, zero.ood.r2) > 0.95
    assert (len(zero.by_step), zero.by_step[-1]) == (7, zero.ood.r2)
    tasks = novel_tasks(config, config_teacher(config))
    y = infer_explicitly(student, jnp.zeros((len(tasks.episodes.query_y), 6)), tasks.episodes, 6).y[:, -1]
    assert y.shape == tasks.episodes.query_y.shape
    assert zero.novel.r2 == pytest.approx(score_novel(y, tasks, tasks.span).r2, rel=1e-3)
    assert zero.novel.r2 > 0.5
