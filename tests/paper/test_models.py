"""Appendix C.3 (app:architecture): each model compared with a NumPy forward pass from its named parameters."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from safetensors.numpy import load, save

from recombine.config.schema import Config
from recombine.config.toml import override
from recombine.model.build import build_model
from recombine.model.hypertransformer import Hypertransformer
from recombine.model.layer.block import Block
from recombine.model.transformer import Transformer
from recombine.model.weights import named_arrays, replace_arrays
from recombine.task.sample import sample_split
from recombine.task.teacher import seed_teacher

from . import numpy_models

SMALL: dict[str, Any] = {"embed_dim": 12, "num_heads": 3, "num_layers": 2}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"num_layers": 1, "num_heads": 1},
    {"num_layers": 3, "position_bias": "shared"},
    {"position_bias": "none"},
    {"causal": True},
    {"scale_scores": False},
    {"final_norm": False},
    {"position_buckets": "one_directional"},
]
HYPER_VARIANTS: list[dict[str, Any]] = [
    *VARIANTS,
    {"base_weights": True},
    {"unit_norm": True},
    {"latent_dim": 3, "hidden_dim": 5},
    {"scaled_forward": True, "base_weights": True},
]


def setting(kind: str, variant: dict[str, Any]) -> tuple[Config, Any, Any]:
    """A configuration, a model with every parameter away from its initial zeros and ones, and an episode."""
    task = {"input_dim": 4, "hidden_dim": 5, "episode_length": 11}
    config = override(Config(), {"model": {"kind": kind, **SMALL, **variant}, "task": task})
    model = build_model(config, key=jax.random.key(1))
    keys = iter(jax.random.split(jax.random.key(2), 1000))
    model = jax.tree.map(lambda leaf: leaf + 0.3 * jax.random.normal(next(keys), leaf.shape), model)
    teacher = seed_teacher(0, config.task.support, 4, 5)
    _, episodes = sample_split(0, "in_dist", teacher, config.task.support, 11, 1)
    return config, model, jax.tree.map(lambda leaf: leaf[0], episodes)


def options(config: Config) -> dict[str, Any]:
    model = config.model
    return {
        "heads": model.num_heads,
        "layers": model.num_layers,
        "causal": model.causal,
        "scaled": model.scale_scores,
    }


def arrays(episode: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return tuple(np.asarray(a, np.float64) for a in (episode.context_x, episode.context_y, episode.query_x))  # pyright: ignore


def check_trace(output: Any, residual: list[np.ndarray], patterns: list[np.ndarray]) -> None:
    np.testing.assert_allclose(output.trace.residual, np.array(residual), rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(output.trace.attention, np.array(patterns), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("variant", VARIANTS, ids=repr)
def test_transformer(variant: dict[str, Any]) -> None:
    config, model, episode = setting("transformer", variant)
    output = model(episode.context_x, episode.context_y, episode.query_x)
    weights = named_arrays(model)
    y, residual, patterns = numpy_models.transformer(weights, *arrays(episode), **options(config))
    np.testing.assert_allclose(output.y, y, rtol=2e-5, atol=2e-5)
    check_trace(output, residual, patterns)
    assert output.trace.latent is None
    assert isinstance(model, Transformer)
    assert all(isinstance(block, Block) for block in model.trunk.blocks)


@pytest.mark.parametrize("variant", HYPER_VARIANTS, ids=repr)
def test_hypertransformer(variant: dict[str, Any]) -> None:
    config, model, episode = setting("hypertransformer", variant)
    output = model(episode.context_x, episode.context_y, episode.query_x)
    weights = named_arrays(model)
    factor = 0.5 if variant.get("scaled_forward") else 1.0  # 1/√4
    unit_norm = bool(variant.get("unit_norm"))
    y, residual, patterns, z = numpy_models.hypertransformer(
        weights, *arrays(episode), **options(config), unit_norm=unit_norm, factor=factor
    )
    np.testing.assert_allclose(output.y, y, rtol=5e-5, atol=5e-5)
    np.testing.assert_allclose(output.trace.latent, z, rtol=2e-5, atol=2e-5)
    check_trace(output, residual, patterns)


@pytest.mark.parametrize("kind", ["transformer", "hypertransformer"])
def test_weights_survive_the_file(kind: str) -> None:
    config, model, episode = setting(kind, {})
    stored = save(named_arrays(model))
    fresh = build_model(config, key=jax.random.key(9))
    loaded = replace_arrays(fresh, load(stored), "the file")
    for a, b in zip(jax.tree.leaves(model), jax.tree.leaves(loaded), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (
        model(episode.context_x, episode.context_y, episode.query_x).y
        == loaded(episode.context_x, episode.context_y, episode.query_x).y
    )


@pytest.mark.parametrize("kind", ["transformer", "hypertransformer"])
def test_a_measure_can_stop_between_blocks_and_go_on(kind: str) -> None:
    """embed → blocks → read_out by hand is the model; a changed stream changes the prediction."""
    _, model, episode = setting(kind, {})
    X = model.embed(episode.context_x, episode.context_y, episode.query_x)
    X, _ = model.trunk.apply_block(0, X)
    after, _ = model.trunk.apply_block(1, X)
    y, _ = model.read_out(after, *episode.shown())
    output = model(episode.context_x, episode.context_y, episode.query_x)
    np.testing.assert_allclose(y, output.y, rtol=1e-6)
    patched, _ = model.trunk.apply_block(1, X.at[-1].add(np.linspace(-1, 1, X.shape[1])))
    assert abs(model.read_out(patched, *episode.shown())[0] - output.y) > 1e-3


def test_the_latent_does_not_see_the_query() -> None:
    """Only the generated layer does: the bottleneck separates inference from execution."""
    _, model, episode = setting("hypertransformer", {})
    assert isinstance(model, Hypertransformer)
    here = model(episode.context_x, episode.context_y, episode.query_x)
    there = model(episode.context_x, episode.context_y, episode.query_x + 1)
    np.testing.assert_array_equal(here.trace.latent, there.trace.latent)
    np.testing.assert_array_equal(here.trace.residual, there.trace.residual)
    assert here.y != there.y
    assert model.execute(here.trace.latent, episode.query_x) == here.y  # pyright: ignore


def test_the_generated_layer_starts_at_unit_scale() -> None:
    """W(ẑ) x has unit variance at initialisation, at the paper's sizes, and init_scale multiplies it."""
    latents = eqx.filter_jit(lambda model, e: jax.vmap(model)(e.context_x, e.context_y, e.query_x).trace.latent)
    for scale, base in ((1.0, False), (3.0, False), (1.0, True)):
        changes = {"kind": "hypertransformer", "init_scale": scale, "base_weights": base}
        config = override(Config(), {"model": changes})
        spread = []
        for seed in range(6):
            model = build_model(config, key=jax.random.key(seed))
            teacher = seed_teacher(seed, config.task.support, 16, 16)
            _, episodes = sample_split(seed, "in_dist", teacher, config.task.support, 32, 50)
            z = latents(model, episodes)
            assert isinstance(model, Hypertransformer)
            W = np.einsum("em,mhd->ehd", z, model.theta) + (0.0 if model.base is None else np.asarray(model.base))
            spread.append(np.var(np.einsum("ehd,ed->eh", W, episodes.query_x)))
            if model.base is not None:
                np.testing.assert_allclose(np.std(model.base), np.std(model.theta), rtol=0.2)
            terms = 6 + base  # W(ẑ) x is a sum of this many products of unit variance for each of 16 inputs
            np.testing.assert_allclose(np.std(model.theta) * np.sqrt(terms * 16) / scale, 1, rtol=0.05)
        assert 0.8 < np.sqrt(np.mean(spread)) / scale < 1.25


def test_initialisation() -> None:
    """docs/decisions.md: matrices of variance 1/inputs, zero biases, tables of variance 1/32."""
    model = build_model(Config(), key=jax.random.key(0))
    feedforward = model.trunk.blocks[0].feedforward
    for linear, inputs in ((feedforward.expand, 128), (feedforward.contract, 512)):
        np.testing.assert_allclose(np.var(linear.weight) * inputs, 1, rtol=0.05)
        assert np.abs(linear.weight).max() < 2.3 / np.sqrt(inputs)  # cut at two standard deviations
        assert (np.asarray(linear.bias) == 0).all()
    tables = np.concatenate([np.ravel(bias.table) for bias in model.trunk.position_biases])
    np.testing.assert_allclose(np.var(tables) * 32, 1, rtol=0.3)


def test_a_scaled_forward_pass_starts_as_the_same_function() -> None:
    """The modules are √d times as large, and their gradient is smaller by as much."""
    key, (config, _, episode) = jax.random.key(1), setting("hypertransformer", {"base_weights": True})
    usual = build_model(config, key=key)
    scaled = build_model(override(config, {"model": {"scaled_forward": True}}), key=key)
    np.testing.assert_allclose(scaled.theta, 2 * usual.theta, rtol=1e-6)
    np.testing.assert_allclose(scaled.base, 2 * usual.base, rtol=1e-6)
    shown = (episode.context_x, episode.context_y, episode.query_x)
    value = eqx.filter_value_and_grad(lambda model: model(*shown).y)
    (y, gradient), (other_y, other_gradient) = value(usual), value(scaled)
    np.testing.assert_allclose(other_y, y, rtol=1e-5)
    np.testing.assert_allclose(2 * other_gradient.theta, gradient.theta, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(other_gradient.latent.weight, gradient.latent.weight, rtol=1e-4, atol=1e-7)
