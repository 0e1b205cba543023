"""The novel part: against NumPy and algebra, and where each reference has to stand."""

import tracemalloc
from functools import cache
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from scipy.special import erf

from recombine.config.preset import preset_config
from recombine.config.schema import Config
from recombine.config.toml import override
from recombine.errors import InputError
from recombine.measure.evaluated import EvaluatedModel
from recombine.measure.novel import (
    NovelTasks,
    measure_novel,
    novel_tasks,
    score_novel,
    snapshot_tasks,
    span_of,
    spans_of,
)
from recombine.measure.reference.baselines import make_references, predict_reference
from recombine.measure.reference.trained_tasks import draw_tasks
from recombine.model.build import build_model
from recombine.record.novel import NovelScore, pool_novel
from recombine.stream import Stream, stream_key
from recombine.task.episode import sample_input
from recombine.task.teacher import config_teacher

CONFIG = override(preset_config("quick", "transformer"), {"task": {"episode_length": 32}})
TEACHER = config_teacher(CONFIG)


@cache
def tasks() -> NovelTasks:
    return novel_tasks(CONFIG, TEACHER)


def label(W: np.ndarray, x: np.ndarray) -> np.ndarray:
    u = x @ W.T
    return (0.5 * u * (1 + erf(u / np.sqrt(2)))) @ np.asarray(TEACHER.a, float)


@cache
def principal_directions() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The inputs, and the singular values and directions of the trained tasks' centred functions on them."""
    x = np.asarray(sample_input(stream_key(CONFIG.seed, Stream.novel), (4_096, CONFIG.task.input_dim)), float)
    trained = np.asarray(draw_tasks(CONFIG.seed, TEACHER, CONFIG.task.support).W, float)
    functions = np.stack([label(W, x) for W in trained])
    return x, *np.linalg.svd(functions - functions.mean(1, keepdims=True), full_matrices=False)[1:]


def by_numpy(prediction: np.ndarray, explained: float) -> dict[str, float]:
    """Slope, R², share and the error inside the span: from the teacher, the inputs and the predictions alone."""
    x, sizes, directions = principal_directions()
    rank = next(k for k in range(1, 99) if np.sum(sizes[:k] ** 2) >= explained * np.sum(sizes**2))
    basis = np.vstack([np.ones(len(x)), directions[:rank]]).T
    row = {tuple(point): i for i, point in enumerate(x)}

    episodes = tasks().episodes
    contexts, first = np.unique(np.asarray(episodes.latent), axis=0, return_index=True)
    sums = np.zeros(6)
    for start in first:
        here = np.flatnonzero((np.asarray(episodes.latent) == np.asarray(episodes.latent)[start]).all(axis=1))
        queries = np.asarray(episodes.query_x, float)[here]
        z = np.asarray(episodes.latent, float)[start]
        W = np.einsum("m,mhd->hd", z, np.asarray(TEACHER.theta, float))
        truth = label(W / np.linalg.svd(W, compute_uv=False)[0], queries)
        B = basis[[row[tuple(point)] for point in queries]]
        residual = lambda f: f - B @ np.linalg.lstsq(B, f, rcond=None)[0]  # noqa: B023, E731
        novel, error = residual(truth), residual(prediction[here] - truth)
        free, n = len(here) - rank - 1, len(here)
        whole = np.sum((prediction[here] - truth) ** 2) / n
        variance = np.sum((truth - truth.mean()) ** 2) / (n - 1)
        sums += [
            novel @ novel / free,
            residual(prediction[here]) @ novel / free,
            error @ error / free,
            whole,
            variance,
            1,
        ]
    novel, predicted, error, whole, variance, count = sums
    assert count == len(contexts) == 200
    return {
        "share": novel / variance,
        "slope": predicted / novel,
        "r2": 1 - error / novel,
        "span_error": (whole - error) / variance,
    }


@cache
def few() -> NovelTasks:
    """The first of the tasks."""
    return novel_tasks(CONFIG, TEACHER, most_episodes=600)


@cache
def score_of(reference: str, finer: bool = False) -> NovelScore:
    known = make_references(0, TEACHER, CONFIG.task.support, CONFIG.task.episode_length, [reference])[reference]
    prediction = predict_reference(known, TEACHER, few().episodes, "ood")
    return score_novel(prediction, few(), few().finer if finer else few().span)


def test_the_same_numbers_from_numpy() -> None:
    known = make_references(0, TEACHER, CONFIG.task.support, CONFIG.task.episode_length, ["ridge"])["ridge"]
    prediction = predict_reference(known, TEACHER, tasks().episodes, "ood")
    for span, explained in ((tasks().span, 0.999), (tasks().finer, 0.9999)):
        found = score_novel(prediction, tasks(), span)
        for name, value in by_numpy(prediction, explained).items():
            assert getattr(found, name) == pytest.approx(value, abs=1e-5), (name, explained)


@pytest.mark.parametrize(
    "reference",
    ["trained_covariance", *(pytest.param(name, marks=pytest.mark.slow) for name in ("trained_task", "context_mean"))],
)
def test_blends_of_trained_tasks_have_none_of_it(reference: str) -> None:
    """Up to the share of the trained tasks' variance that the span leaves out."""
    assert score_of(reference).slope == pytest.approx(0, abs=0.06)
    assert score_of(reference, finer=True).slope == pytest.approx(0, abs=0.02)
    assert score_of(reference, finer=True).r2 < 0.05


def test_the_oracle_has_all_of_it() -> None:
    for reference in ("oracle", "known_latent"):
        found = score_of(reference)
        assert found.slope == pytest.approx(1, abs=1e-2)
        assert found.r2 > 0.98
        assert found.span_error == pytest.approx(0, abs=1e-2)


@pytest.mark.parametrize(("inside", "outside"), [(0.0, 0.0), (1.0, 0.0), (0.3, 1.0), (1.0, 0.4), (2.0, -0.5)])
def test_a_prediction_of_a_known_part(inside: float, outside: float) -> None:
    """ŷ = inside · (part in the span) + outside · (novel part): the slope is `outside`, whatever `inside` is."""
    span = tasks().span
    truth = np.asarray(tasks().episodes.query_y, float).reshape(span.shape[:2])
    part = np.stack([q @ (q.T @ f) for q, f in zip(span, truth, strict=True)])
    found = score_novel((inside * part + outside * (truth - part)).ravel(), tasks(), span)
    assert found.slope == pytest.approx(outside, abs=1e-9)
    assert found.r2 == pytest.approx(1 - (1 - outside) ** 2, abs=1e-9)
    assert (found.slope_error, found.r2_error) == pytest.approx((0, 0), abs=1e-9)


def test_the_error_splits_into_the_parts_inside_and_outside() -> None:
    found = score_of("ridge")
    variance, error = (
        sum(mask.contexts * getattr(mask, name) for mask in found.masks.values()) for name in ("variance", "error")
    )
    assert error / variance == pytest.approx(found.span_error + found.share * (1 - found.r2), abs=1e-12)


def test_the_standard_error_is_that_of_a_bootstrap_over_contexts() -> None:
    known = make_references(0, TEACHER, CONFIG.task.support, CONFIG.task.episode_length, ["ridge"])["ridge"]
    prediction = predict_reference(known, TEACHER, tasks().episodes, "ood").reshape(tasks().span.shape[:2])
    whole = score_novel(prediction, tasks(), tasks().span)
    rng = np.random.default_rng(0)
    slopes, scores = [], []
    for _ in range(300):
        drawn = rng.integers(len(prediction), size=len(prediction))
        query_y = np.asarray(tasks().episodes.query_y).reshape(prediction.shape)[drawn].ravel()
        episodes = SimpleNamespace(query_y=query_y)
        masks = tuple(tasks().mask[i] for i in drawn)
        sample = NovelTasks(episodes, masks, tasks().span[drawn], tasks().finer)  # pyright: ignore[reportArgumentType]
        found = score_novel(prediction[drawn], sample, sample.span)
        slopes.append(found.slope)
        scores.append(found.r2)
    assert whole.slope_error == pytest.approx(np.std(slopes), rel=0.15)
    assert whole.r2_error == pytest.approx(np.std(scores), rel=0.15)


def test_masks_pool_to_the_whole_and_to_any_part() -> None:
    found = score_of("ridge")
    whole = pool_novel(found.masks, found.masks)
    assert whole is not None
    assert whole == (found.share, found.slope, found.r2, found.span_error)
    (mask,) = list(found.masks)[:1]
    one, here = pool_novel(found.masks, [mask]), found.masks[mask]
    assert one is not None
    assert one.slope == pytest.approx(here.predicted / here.novel)
    assert pool_novel(found.masks, ["111111"]) is None


def test_the_span_of_functions_is_the_smallest_that_explains_enough() -> None:
    """Three directions of variance 900, 99 and 1, and a constant for each function."""
    rng = np.random.default_rng(1)
    x = np.linalg.qr(rng.normal(size=(50, 4)) - 0)[0]
    basis = np.linalg.qr(np.column_stack([np.ones(50), x]))[0][:, 1:4]
    weights = np.linalg.qr(rng.normal(size=(30, 3)))[0] * np.sqrt([900, 99, 1])
    functions = weights @ basis.T + rng.normal(size=(30, 1))
    for explained, rank in ((0.8, 1), (0.95, 2), (0.9985, 2), (0.9995, 3)):
        found = span_of(functions, explained)
        assert found.shape == (50, rank + 1)
        np.testing.assert_allclose(found.T @ found, np.eye(rank + 1), atol=1e-9)
        np.testing.assert_allclose(found[:, 1:] @ found[:, 1:].T, basis[:, :rank] @ basis[:, :rank].T, atol=1e-9)
        for given in (rank - 1, rank + 1):
            with pytest.raises(InputError, match="directions"):
                span_of(functions, explained, given)
    for rank in (2, 3):  # two directions explain 0.999 up to rounding: what another machine found is taken
        assert span_of(functions, 0.999, rank).shape == (50, rank + 1)


def test_a_snapshot_has_the_first_of_the_same_tasks_and_costs_a_tenth() -> None:
    first = snapshot_tasks(CONFIG, TEACHER)
    assert first is not None
    count = len(first.episodes.query_y)
    assert count <= CONFIG.measure.episodes // 2  # five sets of episodes are measured besides
    np.testing.assert_array_equal(first.episodes.query_x, tasks().episodes.query_x[:count])
    np.testing.assert_array_equal(first.episodes.latent, tasks().episodes.latent[:count])
    np.testing.assert_array_equal(first.span, tasks().span[: len(first.mask)])


def test_nothing_is_held_out() -> None:
    config: Config = override(CONFIG, {"task": {"support": "2-hot:6"}})
    assert measure_novel(EvaluatedModel(config, build_model(config, key=jax.random.key(0)))) is None
    assert snapshot_tasks(config, TEACHER) is None


VECTORS = override(preset_config("quick", "transformer"), {"task": {"output_dim": 3}})


@cache
def vector_tasks() -> NovelTasks:
    return novel_tasks(VECTORS, config_teacher(VECTORS), most_episodes=600)


@pytest.mark.parametrize(
    ("reference", "slope", "r2", "tolerance"),
    [("known_latent", 1, 1, 1e-6), ("oracle", 1, 1, 0.02), ("trained_covariance", 0, 0, 0.06)],
)
def test_the_novel_part_of_vector_labels(reference: str, slope: float, r2: float, tolerance: float) -> None:
    teacher, task = config_teacher(VECTORS), VECTORS.task
    known = make_references(0, teacher, task.support, task.episode_length, [reference])[reference]
    found = score_novel(predict_reference(known, teacher, vector_tasks().episodes, "ood"), *spanned())
    assert found.slope == pytest.approx(slope, abs=tolerance)
    assert found.r2 == pytest.approx(r2, abs=tolerance)


def spanned() -> tuple[NovelTasks, np.ndarray]:
    return vector_tasks(), vector_tasks().span


def test_the_novel_part_of_vector_labels_is_that_of_each_output() -> None:
    """Each output alone is a task of one output: by least squares on its own span, summed over the outputs."""
    tasks, span = spanned()
    truth = np.asarray(tasks.episodes.query_y, float).reshape(len(tasks.mask), -1, 3)
    prediction = truth + np.random.default_rng(0).normal(size=truth.shape)
    novel = error = 0.0
    for context in range(len(tasks.mask)):
        for output in range(3):
            basis, here = span[output, context], (context, slice(None), output)
            np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-9)
            outside = lambda f: f - basis @ np.linalg.lstsq(basis, f, rcond=None)[0]  # noqa: B023, E731
            novel += np.sum(outside(truth[here]) ** 2)
            error += np.sum(outside((prediction - truth)[here]) ** 2)
    found = score_novel(prediction.reshape(-1, 3), tasks, span)
    assert found.directions == tasks.directions[0] == span.shape[-1] - 1
    assert found.r2 == pytest.approx(1 - error / novel)
    spread = np.var(truth, axis=1, ddof=1).sum()
    assert found.share == pytest.approx(novel / (span.shape[-2] - span.shape[-1]) / spread)


def test_the_functions_of_all_outputs_are_never_copied() -> None:
    """512 functions at 4,096 inputs: a copy in float64 of those of 64 outputs takes a gigabyte."""
    config = override(VECTORS, {"task": {"output_dim": 8}})
    teacher = config_teacher(config)
    tracemalloc.start()  # counts NumPy's arrays, but not JAX's, where the functions in float32 are
    try:
        novel_tasks(config, teacher, most_episodes=600)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 512 * 4_096 * 8 * np.dtype(np.float64).itemsize


def test_spans_of_several_shares_are_those_of_each() -> None:
    functions = np.random.default_rng(0).normal(size=(40, 60, 2)) * 0.5 ** np.arange(40)[:, None, None]
    both = spans_of(functions, (0.9, None), (0.99, None))
    assert both[0].shape[-1] < both[1].shape[-1]
    for explained, found in zip((0.9, 0.99), both, strict=True):
        np.testing.assert_array_equal(found, span_of(functions, explained))


def test_the_span_of_vector_functions_is_that_of_each_output() -> None:
    rng = np.random.default_rng(0)
    mixed = rng.normal(size=(60, 8)) * 0.5 ** np.arange(8)
    functions = np.stack([mixed[:, :k] @ rng.normal(size=(k, 50)) for k in (2, 5)], axis=-1)
    spans = span_of(functions, 0.9999)
    assert spans.shape == (2, 50, span_of(functions[..., 1], 0.9999).shape[1]), "as many as the output that needs most"
    for output, span in enumerate(spans):
        f = functions[..., output].T
        left = f - span @ np.linalg.lstsq(span, f, rcond=None)[0]
        assert np.sum(left**2) < 1e-4 * np.sum((f - f.mean(axis=0)) ** 2)
    assert span_of(functions, 0.9999, spans.shape[-1] - 1).shape == spans.shape
    with pytest.raises(InputError, match="directions"):
        span_of(functions, 0.9999, 1)


@pytest.mark.parametrize("poor", ["one direction", "one task", "nothing"])
def test_an_output_that_needs_fewer_directions_has_a_whole_span(poor: str) -> None:
    """Finite, independent, and with its own function inside."""
    rng = np.random.default_rng(0)
    rich, alone = rng.normal(size=(60, 8)) @ rng.normal(size=(8, 50)), rng.normal(size=50)
    weight = {"one direction": rng.normal(size=60), "one task": np.eye(60)[7], "nothing": np.zeros(60)}[poor]
    spans = span_of(np.stack([rich, np.outer(weight, alone)], axis=-1), 0.9999)
    assert np.linalg.matrix_rank(spans[1]) == spans.shape[-1] == 9
    left = alone - spans[1] @ np.linalg.lstsq(spans[1], alone, rcond=None)[0]
    assert poor == "nothing" or np.sum(left**2) < 1e-9 * np.sum(alone**2)
