"""The values of the scorecard, recomputed by NumPy, SciPy and scikit-learn from the weights and the episodes."""

from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics import r2_score

from recombine.config.preset import preset_config
from recombine.config.schema import Config
from recombine.config.toml import override
from recombine.measure.latent.interventions import LatentInterventions, SubspaceInterventions
from recombine.measure.scorecard import MEASURES, Scorecard, make_scorecard
from recombine.model.build import build_model
from recombine.model.interface import Model, Output, Trace
from recombine.model.weights import named_arrays
from recombine.stream import Stream, stream_key
from recombine.support.masks import k_hot_masks
from recombine.task.episode import Episode, sample_input
from recombine.task.sample import sample_masks
from recombine.task.teacher import config_teacher
from tests.paper import numpy_models

EPISODES, LENGTH = 150, 8


def make_config(kind: str) -> Config:
    return override(preset_config("smoke", kind), {"measure": {"episodes": EPISODES}})


@cache
def examine(kind: str) -> tuple[Config, Model, Scorecard]:
    """Examine an untrained model: all measures are defined for it too."""
    config = make_config(kind)
    model = build_model(config, key=jax.random.key(3))
    return config, model, make_scorecard(config, model, 7)


both = pytest.mark.parametrize("kind", ["transformer", "hypertransformer"])


class Forward:
    """The output of the NumPy model on some episodes: predictions, residual stream of the last token, latent."""

    def __init__(self, config: Config, model: Model, stream: Stream, masks: Any, step: int = 0):
        teacher = config_teacher(config)
        e: Episode = sample_masks(config.seed, stream, teacher, masks, LENGTH, EPISODES, step=step)
        self.theta, self.a = np.asarray(teacher.theta, float), np.asarray(teacher.a, float)
        self.z, self.query_x, self.query_y = (np.asarray(x, float) for x in (e.latent, e.query_x, e.query_y))
        self.context_mean = np.asarray(e.context_y, float).mean(axis=1)
        self.weights = named_arrays(model)
        run = getattr(numpy_models, config.model.kind)
        found = [
            run(self.weights, x, y, q, heads=4, layers=2, causal=False, scaled=True)
            for x, y, q in zip(
                np.asarray(e.context_x, float), np.asarray(e.context_y, float), self.query_x, strict=True
            )
        ]
        self.y = np.array([one[0] for one in found])
        self.residual = np.array([one[1] for one in found])
        self.latent = np.array([one[3] for one in found]) if config.model.kind == "hypertransformer" else None

    def r2(self, y: np.ndarray) -> float:
        return float(1 - np.sum((self.query_y - y) ** 2) / np.sum((self.query_y - self.context_mean) ** 2))


def gelu(u: np.ndarray) -> np.ndarray:
    return u * norm.cdf(u)


def scaled(theta: np.ndarray, z: np.ndarray) -> np.ndarray:
    return z / np.linalg.norm(np.einsum("em,mhd->ehd", z, theta), ord=2, axis=(1, 2))[:, None]


def execute(weights: dict[str, np.ndarray], z: np.ndarray, x: np.ndarray) -> np.ndarray:
    hidden = gelu(np.einsum("em,mhd,ed->eh", z, weights["theta"].astype(float), x))
    return (hidden @ weights["readout.weight"].astype(float))[:, 0] + float(weights["readout.bias"][0])


def teach(theta: np.ndarray, a: np.ndarray, v: np.ndarray, x: np.ndarray) -> np.ndarray:
    return gelu(np.einsum("em,mhd,ed->eh", v, theta, x)) @ a


@both
def test_its_shape(kind: str) -> None:
    _, model, card = examine(kind)
    sizes = [leaf.size for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))]
    assert (card.step, card.num_parameters) == (7, sum(sizes))
    assert set(MEASURES) <= set(Scorecard.__struct_fields__)
    latent = kind == "hypertransformer"
    assert (card.modules is not None) == latent
    assert isinstance(card.interventions, LatentInterventions if latent else SubspaceInterventions)


@both
def test_active_modules(kind: str) -> None:
    config, model, card = examine(kind)
    assert list(card.active_modules) == ["1", "2", "3", "4", "5", "6"]
    for k in (1, 4):
        on = Forward(config, model, Stream.active_modules, k_hot_masks(6, k), step=k)
        assert card.active_modules[str(k)].r2 == pytest.approx(on.r2(on.y), abs=1e-4)
        assert card.active_modules[str(k)].mse == pytest.approx(np.mean((on.query_y - on.y) ** 2), rel=1e-4)


@both
def test_token_probes(kind: str) -> None:
    """The mean of a context's tokens after the embedding is an affine function of the tokens' means."""
    config, model, card = examine(kind)
    assert card.probe_tokens is not None
    weights = named_arrays(model)
    features, latents = [], []
    for stream, masks in ((Stream.probe, config.task.support.masks), (Stream.ood, config.task.support.held_out)):
        e = sample_masks(config.seed, stream, config_teacher(config), masks, LENGTH, EPISODES)
        tokens = np.concatenate([np.asarray(e.context_x, float), np.asarray(e.context_y, float)[..., None]], axis=2)
        features.append(numpy_models.linear(weights, "trunk.embedding", tokens.mean(axis=1)))
        latents.append(np.asarray(e.latent, float))
    decoded = Ridge(alpha=1.0).fit(features[0], latents[0]).predict(features[1])
    expected = r2_score(latents[1], decoded, multioutput="variance_weighted")
    assert card.probe_tokens.mean.ood is not None
    assert card.probe_tokens.mean.ood[0] == pytest.approx(expected, abs=1e-4)


def test_latent_interventions_and_modules() -> None:
    config, model, card = examine("hypertransformer")
    fit = Forward(config, model, Stream.probe, config.task.support.masks)
    theta, a, weights = fit.theta, fit.a, fit.weights
    v, inferred = scaled(theta, fit.z), fit.latent
    assert inferred is not None
    to_inferred, to_v = LinearRegression().fit(v, inferred), LinearRegression().fit(inferred, v)
    assert isinstance(card.interventions, LatentInterventions)
    for split, stream, masks in (
        ("in_dist", Stream.in_dist, config.task.support.masks),
        ("ood", Stream.ood, config.task.support.held_out),
    ):
        on, found = Forward(config, model, stream, masks), getattr(card.interventions, split)
        at = scaled(theta, on.z)
        mapped = to_inferred.predict(at)
        middle, truth = (on.latent + np.roll(on.latent, 1, axis=0)) / 2, (at + np.roll(at, 1, axis=0)) / 2
        assert found.inferred == pytest.approx(on.r2(on.y), abs=1e-4)
        assert found.true == pytest.approx(on.r2(execute(weights, mapped, on.query_x)), abs=1e-4)
        assert found.wrong == pytest.approx(on.r2(execute(weights, np.roll(mapped, 1, axis=0), on.query_x)), abs=1e-4)
        assert found.ceiling == pytest.approx(on.r2(teach(theta, a, to_v.predict(mapped), on.query_x)), abs=1e-4)
        expected = r2_score(teach(theta, a, truth, on.query_x), execute(weights, middle, on.query_x))
        assert found.interpolated == pytest.approx(expected, abs=1e-4)
    assert card.modules is not None
    assert card.modules.map_r2 == pytest.approx(
        r2_score(inferred, to_inferred.predict(v), multioutput="variance_weighted"), abs=1e-4
    )
    x = np.asarray(sample_input(stream_key(config.seed, Stream.modules), (4_000, config.task.input_dim)), float)
    for entry in (card.modules.single[2], card.modules.pairs[4]):
        mask = np.array([[float(letter) for letter in entry.mask]])
        at = np.repeat(scaled(theta, mask), len(x), axis=0)
        mapped, truth = to_inferred.predict(at), teach(theta, a, at, x)
        assert entry.r2 == pytest.approx(r2_score(truth, execute(weights, mapped, x)), abs=1e-3)
        assert entry.ceiling == pytest.approx(r2_score(truth, teach(theta, a, to_v.predict(mapped), x)), abs=1e-3)
        assert entry.trained == (tuple(int(letter) for letter in entry.mask) in config.task.support.masks)
    assert [entry.module for entry in card.modules.single] == [1, 2, 3, 4, 5, 6]


def test_subspace_interventions() -> None:
    """Tested at the last point, where only a LayerNorm and an affine map follow."""
    config, model, card = examine("transformer")
    assert isinstance(card.interventions, SubspaceInterventions)
    assert [at.point for at in card.interventions.points] == [1, 2]
    fit = Forward(config, model, Stream.probe, config.task.support.masks)
    probe = Ridge(alpha=1.0).fit(fit.residual[:, 2, -1], fit.z)
    on, found = Forward(config, model, Stream.ood, config.task.support.held_out), card.interventions.points[1].ood
    assert found is not None
    stream = on.residual[:, 2, -1]

    def r2_with(z: np.ndarray) -> float:
        changed = stream + (z - probe.predict(stream)) @ np.linalg.pinv(probe.coef_.T, rcond=1e-5)
        normal = np.array([numpy_models.layer_norm(on.weights, "trunk.final_norm", row) for row in changed])
        return on.r2(numpy_models.linear(on.weights, "readout", normal)[:, 0])

    assert found.none == pytest.approx(on.r2(on.y), abs=1e-4)
    assert found.true == pytest.approx(r2_with(on.z), abs=1e-3)
    assert found.wrong == pytest.approx(r2_with(np.roll(on.z, 1, axis=0)), abs=1e-3)


class Plain(eqx.Module):
    """A model that returns an empty trace."""

    weight: jax.Array

    def __call__(self, context_x: jax.Array, context_y: jax.Array, query_x: jax.Array) -> Output:
        return Output(self.weight * context_y.mean(), Trace())


def test_a_model_that_tells_nothing_of_itself() -> None:
    card = make_scorecard(make_config("transformer"), Plain(jnp.asarray(0.0)), 1)
    assert (card.probe_tokens, card.modules, card.interventions) == (None, None, None)
    on = Forward(make_config("transformer"), build_model(make_config("transformer"), key=jax.random.key(0)),
                 Stream.active_modules, k_hot_masks(6, 2), step=2)  # fmt: skip
    assert card.active_modules["2"].r2 == pytest.approx(on.r2(np.zeros(EPISODES)), abs=1e-6)
