"""The references, compared with scikit-learn where it has them, and the scores that each must reach."""

from collections import Counter
from dataclasses import replace
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import least_squares
from scipy.special import erf
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor

from recombine.config.task import TaskConfig
from recombine.errors import InputError
from recombine.measure.r2 import score, score_by_mask
from recombine.measure.reference import choose_noise
from recombine.measure.reference.baselines import (
    NUM_NEIGHBOURS,
    RIDGE_STRENGTH,
    Reference,
    make_references,
    predict_reference,
)
from recombine.measure.reference.oracle import fit_scaled_latent
from recombine.measure.reference.trained_tasks import TrainedCovariance, TrainedTask, draw_tasks, krige
from recombine.record.reference import REFERENCE_NAMES
from recombine.stream import Stream
from recombine.support.split import EVAL_SPLITS, Split
from recombine.support.support import Support, paper_support
from recombine.task.episode import Episode
from recombine.task.interface import Teacher
from recombine.task.sample import sample_masks, sample_split
from recombine.task.teacher import seed_teacher, task_teacher

SUPPORT = paper_support("connected+")
TEACHER = seed_teacher(0, SUPPORT, 16, 16)


@cache
def references() -> dict[str, Reference]:
    return make_references(0, TEACHER, SUPPORT, 32)


def batch(split: Split, length: int, count: int) -> tuple[Teacher, Episode]:
    return sample_split(0, split, TEACHER, SUPPORT, length, count)


def r2(name: str, split: Split, length: int, count: int = 200) -> float:
    teacher, episodes = batch(split, length, count)
    return score(predict_reference(references()[name], teacher, episodes, split), episodes).r2


@pytest.mark.parametrize(
    "split",
    [pytest.param(split, marks=() if split in ("ood", "control") else pytest.mark.slow) for split in EVAL_SPLITS],
)
def test_where_each_reference_stands_at_32(split: Split) -> None:
    """R² is 0 for the context mean, 1 for the known latent, above 0.99 for the oracle, and between for the others."""
    values = {name: r2(name, split, 32) for name in references()}
    assert abs(values["context_mean"]) < 1e-9
    assert values["known_latent"] > 1 - 1e-9
    assert values["oracle"] >= 0.99
    assert 0.2 < values["nearest_neighbours"] < values["ridge"] < 0.8
    assert 0.3 < values["fitted_network"] < 0.9
    assert (values["trained_task"] > 0.99) == (split == "in_dist")


def test_all_of_them_have_their_names() -> None:
    assert tuple(references()) == REFERENCE_NAMES


@pytest.mark.parametrize(("name", "length"), [("ridge", 32), ("ridge", 8), ("nearest_neighbours", 32)])
def test_against_scikit_learn(name: str, length: int) -> None:
    teacher, episodes = batch("in_dist", length, 30)
    predicted = predict_reference(references()[name], teacher, episodes, "in_dist")
    for i in range(30):
        estimator = Ridge(alpha=RIDGE_STRENGTH) if name == "ridge" else KNeighborsRegressor(NUM_NEIGHBOURS)
        x, y = np.asarray(episodes.context_x[i], float), np.asarray(episodes.context_y[i], float)
        expected = estimator.fit(x, y).predict(np.asarray(episodes.query_x[i], float)[None])[0]
        np.testing.assert_allclose(predicted[i], expected, rtol=1e-6, atol=1e-6)


def test_neighbours_of_a_short_context() -> None:
    """With fewer pairs than neighbours, all pairs are used."""
    teacher, episodes = batch("in_dist", 3, 10)
    predicted = predict_reference(references()["nearest_neighbours"], teacher, episodes, "in_dist")
    np.testing.assert_allclose(predicted, np.mean(episodes.context_y, axis=1), rtol=1e-6)


@pytest.mark.parametrize("split", EVAL_SPLITS)
def test_the_oracle_escapes_local_minima(split: Split) -> None:
    """With seven pairs for six unknowns one start is not enough (R² ≈ 0.6), but the restarts are."""
    assert r2("oracle", split, 8, 300) > 0.99


def test_the_oracle_finds_what_scipy_finds() -> None:
    """Its latent fits the context as well as SciPy's least squares started at the truth, and is the truth."""
    _, episodes = batch("ood", 16, 8)
    theta, a = np.asarray(TEACHER.theta, float), np.asarray(TEACHER.a, float)
    fitted = np.asarray(jax.jit(jax.vmap(lambda e: fit_scaled_latent(TEACHER, e)))(episodes))
    for i in range(8):
        x, y = np.asarray(episodes.context_x[i], float), np.asarray(episodes.context_y[i], float)

        def residual(v: np.ndarray, x: np.ndarray = x, y: np.ndarray = y) -> np.ndarray:
            u = x @ np.einsum("m,mhd->dh", v, theta)
            return (u * (1 + erf(u / np.sqrt(2))) / 2) @ a - y

        z = np.asarray(episodes.latent[i], float)
        truth = z / np.linalg.norm(np.einsum("m,mhd->hd", z, theta), 2)
        expected = least_squares(residual, truth).x
        np.testing.assert_allclose(expected, truth, atol=1e-4)
        np.testing.assert_allclose(fitted[i], expected, atol=1e-3)


def test_the_tasks_that_references_know_are_trained_ones() -> None:
    """The latents of these tasks can be recovered from their weights."""
    reference = references()["trained_task"]
    assert isinstance(reference, TrainedTask)
    theta, W = np.asarray(TEACHER.theta, float), np.asarray(reference.W, float)
    v = np.linalg.lstsq(theta.reshape(6, -1).T, W.reshape(len(W), -1).T, rcond=None)[0].T
    np.testing.assert_allclose(np.linalg.norm(W, 2, axis=(1, 2)), 1, atol=1e-5)
    masks = Counter(tuple(row) for row in (np.abs(v) > 1e-4).astype(int))
    assert masks.keys() == set(SUPPORT.masks)
    assert set(masks.values()) == {42, 43}
    shares = v.max(axis=1) / v.sum(axis=1)  # z is between ½ and 1, and its sum 1.5
    assert shares.min() > 0.5 - 1e-4
    assert shares.max() < 2 / 3 + 1e-4
    np.testing.assert_allclose(shares.mean(), np.mean((0.5 + np.linspace(0.5, 1, 1001) / 2) / 1.5), atol=0.01)


@pytest.mark.parametrize("split", ["ood", "control"])
def test_what_is_made_of_trained_tasks(split: Split) -> None:
    """The best trained task is compared with a search, the covariance with ridge regression on the tasks' labels."""
    best, linear = references()["trained_task"], references()["trained_covariance"]
    assert isinstance(best, TrainedTask)
    assert isinstance(linear, TrainedCovariance)
    W, a = np.asarray(best.W, float), np.asarray(TEACHER.a, float)
    teacher, episodes = batch(split, 16, 20)
    found = [predict_reference(reference, teacher, episodes, split) for reference in (best, linear)]
    for i in range(20):
        x = np.concatenate([episodes.context_x[i], episodes.query_x[i][None]]).astype(float)
        y = np.asarray(episodes.context_y[i], float)
        u = np.einsum("khd,nd->nkh", W, x)
        features = (u * (1 + erf(u / np.sqrt(2))) / 2) @ a
        errors = ((features[:-1] - y[:, None]) ** 2).sum(axis=0)
        np.testing.assert_allclose(found[0][i], features[-1, errors.argmin()], atol=1e-9)
        # Kriging with k = φᵀφ/K and noise λ is ridge regression on φ with K λ.
        mean = features.mean(axis=1)
        phi = features - mean[:, None]
        fit = Ridge(alpha=linear.noise * (phi[:-1] ** 2).sum() / len(y), fit_intercept=False).fit(
            phi[:-1], y - mean[:-1]
        )
        np.testing.assert_allclose(found[1][i], mean[-1] + fit.predict(phi[-1:])[0], rtol=1e-6, atol=1e-8)


def test_the_noise_is_chosen_by_leaving_out_one_trained_mask_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The errors are compared with ridge regressions on the labels of the tasks that are left."""
    monkeypatch.setattr(choose_noise, "NUM_CONTEXTS", 48)
    support = paper_support("connected")
    teacher, length = seed_teacher(3, support, 5, 4), 7
    tasks = draw_tasks(3, teacher, support)
    found = choose_noise.left_out_errors(3, teacher, support, length, tasks)
    theta, W, a = (np.asarray(array, float) for array in (teacher.theta, tasks.W, teacher.a))
    v = np.linalg.lstsq(theta.reshape(6, -1).T, W.reshape(len(W), -1).T, rcond=None)[0].T
    contexts = sample_masks(3, Stream.trained_tasks, teacher, support.masks, length, 48, step=1)
    active = np.asarray(contexts.latent) > 0
    assert {tuple(row) for row in active.astype(int)} == set(support.masks)
    for i in range(48):
        others = (np.abs(v) > 1e-4).tolist()
        left = np.asarray([row != active[i].tolist() for row in others])
        assert 0.8 < left.mean() < 0.87  # five of six masks
        x = np.concatenate([contexts.context_x[i], contexts.query_x[i][None]]).astype(float)
        u = np.einsum("khd,nd->nkh", W[left], x)
        features = (u * (1 + erf(u / np.sqrt(2))) / 2) @ a
        mean = features.mean(axis=1)
        phi, y = features - mean[:, None], np.asarray(contexts.context_y[i], float) - mean[:-1]
        for noise, error in zip(choose_noise.NOISES, found[i], strict=True):
            if noise < 1e-4:
                continue  # scikit-learn's solver is not accurate there
            fit = Ridge(alpha=noise * (phi[:-1] ** 2).sum() / len(y), fit_intercept=False).fit(phi[:-1], y)
            expected = (mean[-1] + fit.predict(phi[-1:])[0] - float(contexts.query_y[i])) ** 2
            np.testing.assert_allclose(error, expected, rtol=1e-5, atol=1e-8)
    best = choose_noise.NOISES[found.sum(axis=0).argmin()]
    assert choose_noise.choose_noise(3, teacher, support, length, tasks) == best


def test_held_out_masks_have_no_part_in_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is there a choice with a single trained mask."""
    monkeypatch.setattr(choose_noise, "NUM_CONTEXTS", 48)
    teacher = seed_teacher(3, SUPPORT, 5, 4)
    some, none = (Support("", SUPPORT.masks, held_out) for held_out in (SUPPORT.held_out, ()))
    one, other = (choose_noise.left_out_errors(3, teacher, s, 7, draw_tasks(3, teacher, s)) for s in (some, none))
    np.testing.assert_array_equal(one, other)
    single = Support("", ((1,) * 6,), SUPPORT.held_out)
    tasks = draw_tasks(3, teacher, single)
    assert choose_noise.choose_noise(3, teacher, single, 7, tasks) == choose_noise.ONE_MASK


def test_remembering_is_enough_in_distribution_alone() -> None:
    assert r2("trained_task", "in_dist", 16) > 0.999
    assert r2("trained_covariance", "in_dist", 32) > 0.98
    assert r2("trained_task", "ood", 32) < r2("ridge", "ood", 32) < r2("trained_covariance", "ood", 32) < 0.95


def test_a_longer_context_helps() -> None:
    for name in ("nearest_neighbours", "ridge", "fitted_network"):
        assert r2(name, "in_dist", 64) > r2(name, "in_dist", 16) + 0.05


@pytest.mark.parametrize("name", ["context_mean", "nearest_neighbours", "ridge", "fitted_network"])
def test_baselines_do_not_know_the_teacher(name: str) -> None:
    """With teacher and latent replaced by NaN, the baselines predict the same."""
    teacher, episodes = batch("in_dist", 16, 20)
    expected = predict_reference(references()[name], teacher, episodes, "in_dist")
    blind_teacher = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), teacher)
    blind = eqx.tree_at(lambda e: e.latent, episodes, jnp.full_like(episodes.latent, jnp.nan))
    np.testing.assert_array_equal(predict_reference(references()[name], blind_teacher, blind, "in_dist"), expected)


def test_the_oracle_does_not_know_the_latent() -> None:
    teacher, episodes = batch("in_dist", 16, 20)
    blind = eqx.tree_at(lambda e: e.latent, episodes, jnp.full_like(episodes.latent, jnp.nan))
    expected = predict_reference(references()["oracle"], teacher, episodes, "in_dist")
    np.testing.assert_array_equal(predict_reference(references()["oracle"], teacher, blind, "in_dist"), expected)


VECTORS = TaskConfig(SUPPORT, 6, 6, 12, output_dim=3)


@cache
def vectors() -> Teacher:
    return task_teacher(VECTORS, 0)


@cache
def vector_batch(split: Split) -> tuple[Teacher, Episode]:
    return sample_split(0, split, vectors(), SUPPORT, VECTORS.episode_length, 40)


@cache
def predicted_vectors(name: str, split: Split) -> np.ndarray:
    known = make_references(0, vectors(), SUPPORT, VECTORS.episode_length, [name])[name]
    return predict_reference(known, *vector_batch(split), split)


@pytest.mark.parametrize("name", ["ridge", "nearest_neighbours", "context_mean"])
def test_vector_labels_against_scikit_learn(name: str) -> None:
    predicted, (_, episodes) = predicted_vectors(name, "in_dist"), vector_batch("in_dist")
    estimators = {"ridge": Ridge(alpha=RIDGE_STRENGTH), "nearest_neighbours": KNeighborsRegressor(NUM_NEIGHBOURS)}
    estimator = estimators.get(name, DummyRegressor())
    for i, found in enumerate(predicted):
        x, y = np.asarray(episodes.context_x[i], float), np.asarray(episodes.context_y[i], float)
        expected = estimator.fit(x, y).predict(np.asarray(episodes.query_x[i], float)[None])[0]
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_the_score_of_vector_labels_against_numpy() -> None:
    _, episodes = vector_batch("ood")
    context, truth = np.asarray(episodes.context_y, float), np.asarray(episodes.query_y, float)
    predicted = truth + np.random.default_rng(0).normal(size=truth.shape) * [0.1, 0.2, 0.4]
    error = spread = within = 0.0
    by_sequence = []
    for y, true, found in zip(context, truth, predicted, strict=True):
        for output in range(3):
            error += (true[output] - found[output]) ** 2
            spread += (true[output] - np.mean(y[:, output])) ** 2
            within += np.var(y[:, output])
        whole = sum(np.var([*y[:, output], true[output]]) for output in range(3))
        by_sequence.append(1 - np.sum((true - found) ** 2) / whole)
    found = score(predicted, episodes)
    assert found.r2 == pytest.approx(1 - error / spread)
    assert found.r2_variance == pytest.approx(1 - error / within)
    assert found.r2_sequence == pytest.approx(np.mean(by_sequence))
    assert found.mse == pytest.approx(error / truth.size)
    masks = score_by_mask(predicted, episodes, SUPPORT.held_out)
    assert sum(one.episodes * one.mse for one in masks.values()) == pytest.approx(found.mse * len(truth))
    assert sum(one.episodes * one.spread for one in masks.values()) == pytest.approx(spread / 3)
    with pytest.raises(InputError, match="prediction"):
        score(predicted[:, 0], episodes)


@pytest.mark.parametrize("split", ["ood", "control"])
def test_the_oracle_of_vector_labels(split: Split) -> None:
    _, episodes = vector_batch(split)
    assert score(predicted_vectors("oracle", split), episodes).r2 > 0.99
    assert score(predicted_vectors("known_latent", split), episodes).r2 > 1 - 1e-9


def test_the_oracle_of_vector_labels_of_two_layers() -> None:
    task = replace(VECTORS, num_layers=2)
    teacher, episodes = sample_split(0, "ood", task_teacher(task, 0), SUPPORT, task.episode_length, 20)
    known = make_references(0, teacher, SUPPORT, task.episode_length, ["oracle"])["oracle"]
    assert score(predict_reference(known, teacher, episodes, "ood"), episodes).r2 > 0.99


def test_other_references_of_vector_labels() -> None:
    """On trained masks the memory of tasks is nearly perfect; the fitted network is better than the context's mean."""
    _, episodes = vector_batch("in_dist")
    assert score(predicted_vectors("trained_task", "in_dist"), episodes).r2 > 0.98
    assert 0.2 < score(predicted_vectors("fitted_network", "in_dist"), episodes).r2 < 0.9
    held_out = score(predicted_vectors("trained_task", "ood"), vector_batch("ood")[1]).r2
    assert held_out < 0.95


def test_kriging_of_vector_labels_against_numpy() -> None:
    """The joint covariance of all outputs of all inputs."""
    rng = np.random.default_rng(0)
    g, y, noise = rng.normal(size=(50, 5, 2)), rng.normal(size=(4, 2)), 0.1
    with jax.enable_x64(True):
        found = np.asarray(krige(jnp.asarray(y), jnp.asarray(g), jnp.ones(50), noise))
    flat = g.reshape(50, 10)
    k, mean = np.cov(flat.T, bias=True), flat.mean(axis=0)
    known = k[:8, :8] + noise * np.trace(k[:8, :8]) / 8 * np.eye(8)
    np.testing.assert_allclose(found, mean[8:] + k[8:, :8] @ np.linalg.solve(known, y.ravel() - mean[:8]), rtol=1e-9)
