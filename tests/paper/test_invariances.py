"""No model sees the query's label, the order of the pairs matters as the paper says, and the position bias is T5's."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recombine.config.model import SEES_LABEL
from recombine.config.preset import preset_config
from recombine.config.toml import override
from recombine.measure.predict import predict
from recombine.measure.reference.baselines import Reference, make_references, predict_reference
from recombine.model.build import build_model
from recombine.model.forward import extra_pair
from recombine.model.layer.position import PositionBias, distance_bucket
from recombine.model.trunk import Trunk
from recombine.record.reference import REFERENCE_NAMES
from recombine.task.sample import sample_split
from recombine.task.teacher import seed_teacher

from .numpy_models import t5_bucket

CONFIG = preset_config("smoke", "transformer")
TEACHER = seed_teacher(0, CONFIG.task.support, 4, 4)
EPISODES = sample_split(0, "in_dist", TEACHER, CONFIG.task.support, 8, 16)[1]


@pytest.mark.parametrize("kind", ["transformer", "hypertransformer"])
@pytest.mark.parametrize("label", [1e6, np.nan])
def test_models(kind, label: float) -> None:
    model = build_model(preset_config("smoke", kind), key=jax.random.key(0))
    changed = eqx.tree_at(lambda e: e.query_y, EPISODES, jnp.full_like(EPISODES.query_y, label))
    np.testing.assert_array_equal(predict(model, EPISODES), predict(model, changed))
    assert np.isfinite(predict(model, EPISODES)).all()


def test_the_printed_input_shows_the_label_and_says_so() -> None:
    """Taken literally, the paper's X contains (x_N, y_N). Such a model has another name, in which no other can be."""
    config = override(preset_config("smoke", "hypertransformer"), {"model": {"literal_input": True}})
    assert config.model.label == SEES_LABEL != "hypertransformer"
    model = build_model(config, key=jax.random.key(0))
    changed = eqx.tree_at(lambda e: e.query_y, EPISODES, EPISODES.query_y + 1)
    assert (np.abs(predict(model, EPISODES) - predict(model, changed)) > 1e-6).all()
    pair = np.concatenate([EPISODES.query_x, EPISODES.query_y[:, None]], axis=1)
    tokens = jax.vmap(model.tokens)(*EPISODES.shown(extra_pair(model)))
    np.testing.assert_array_equal(tokens[:, -2], pair)
    np.testing.assert_array_equal(tokens[:, -1], 0)
    usual = build_model(preset_config("smoke", "hypertransformer"), key=jax.random.key(0))
    np.testing.assert_array_equal(jnp.delete(tokens, -2, axis=1), jax.vmap(usual.tokens)(*EPISODES.shown()))


@cache
def references() -> dict[str, Reference]:
    return make_references(0, TEACHER, CONFIG.task.support, 8)


@pytest.mark.parametrize("name", REFERENCE_NAMES)
def test_references(name: str) -> None:
    reference = references()[name]
    changed = eqx.tree_at(lambda e: e.query_y, EPISODES, jnp.full_like(EPISODES.query_y, np.nan))
    expected = predict_reference(reference, TEACHER, EPISODES, "in_dist")
    np.testing.assert_array_equal(predict_reference(reference, TEACHER, changed, "in_dist"), expected)
    assert np.isfinite(expected).all()


def setting(kind, **model):
    config = override(preset_config("smoke", kind), {"model": model})
    teacher = seed_teacher(0, config.task.support, 4, 4)
    _, episodes = sample_split(0, "in_dist", teacher, config.task.support, 8, 1)
    episode = jax.tree.map(lambda leaf: leaf[0], episodes)
    return build_model(config, key=jax.random.key(0)), episode


ORDER = np.array([3, 0, 6, 1, 5, 2, 4])


@pytest.mark.parametrize("kind", ["transformer", "hypertransformer"])
def test_without_positions_the_order_is_irrelevant(kind) -> None:
    model, e = setting(kind, position_bias="none")
    output = model(e.context_x, e.context_y, e.query_x)
    permuted = model(e.context_x[ORDER], e.context_y[ORDER], e.query_x)
    np.testing.assert_allclose(output.y, permuted.y, rtol=1e-5)
    # And each token's stream moves with its pair.
    order = [*ORDER, len(ORDER)]
    np.testing.assert_allclose(output.trace.residual[:, order], permuted.trace.residual, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["transformer", "hypertransformer"])
def test_with_positions_it_is_not(kind) -> None:
    model, e = setting(kind)
    output = model(e.context_x, e.context_y, e.query_x)
    permuted = model(e.context_x[ORDER], e.context_y[ORDER], e.query_x)
    assert abs(output.y - permuted.y) > 1e-4


@pytest.mark.parametrize("kind", ["transformer", "hypertransformer"])
def test_pairs_stay_together(kind) -> None:
    """Permuting the labels alone gives another task, with or without positions."""
    model, e = setting(kind, position_bias="none")
    output = model(e.context_x, e.context_y, e.query_x)
    assert abs(output.y - model(e.context_x, e.context_y[ORDER], e.query_x).y) > 1e-5


@pytest.mark.parametrize("kind", ["transformer", "hypertransformer"])
def test_with_positions_only_signed_distances_count(kind) -> None:
    model, e = setting(kind)

    def mirror(table: np.ndarray) -> np.ndarray:
        earlier, later = table[:, :16], table[:, 16:]  # bucket 0 is the token itself
        return np.concatenate([earlier[:, :1], later[:, 1:], later[:, :1], earlier[:, 1:]], axis=1)

    def tables(trunk: Trunk) -> list:
        return [bias.table for bias in trunk.position_biases]

    mirrored = eqx.tree_at(
        tables, model.trunk, [jnp.asarray(mirror(np.asarray(table))) for table in tables(model.trunk)]
    )
    forward = backward = model.embed(e.context_x, e.context_y, e.query_x)
    backward = backward[::-1]
    for layer in range(len(model.trunk.blocks)):
        forward, _ = model.trunk.apply_block(layer, forward)
        backward, _ = mirrored.apply_block(layer, backward)
    np.testing.assert_allclose(forward, backward[::-1], rtol=1e-4, atol=1e-5)


def test_causal_attention_looks_back_only() -> None:
    model, e = setting("transformer", causal=True)
    output = model(e.context_x, e.context_y, e.query_x)
    assert (np.triu(np.asarray(output.trace.attention), 1) == 0).all()
    later = model(e.context_x.at[4].add(1.0), e.context_y, e.query_x)
    np.testing.assert_array_equal(output.trace.residual[:, :4], later.trace.residual[:, :4])
    assert (output.trace.residual[1:, 4:] != later.trace.residual[1:, 4:]).any()


@pytest.mark.parametrize("bidirectional", [True, False])
def test_buckets(bidirectional: bool) -> None:
    distances = np.arange(-300, 301)
    expected = [t5_bucket(int(distance), bidirectional) for distance in distances]
    np.testing.assert_array_equal(distance_bucket(distances, bidirectional), expected)


def test_buckets_as_the_t5_paper_describes_them() -> None:
    """32 buckets; those of near tokens hold one distance; beyond 128 all share the last."""
    near = distance_bucket(np.arange(-7, 8))
    assert len(set(near)) == 15
    every = distance_bucket(np.arange(-1000, 1001))
    assert set(every) == set(range(32)) - {16}  # 16 would be the later token at distance 0
    assert len(set(distance_bucket(np.arange(128, 1000)))) == 1
    assert distance_bucket(np.array([127]))[0] == distance_bucket(np.array([128]))[0]
    assert (np.diff(distance_bucket(np.arange(1, 1000))) >= 0).all()


def test_the_bias_depends_on_the_distance_alone() -> None:
    bias = np.asarray(PositionBias(3, True, key=jax.random.key(0))(20))
    for offset in range(-19, 20):
        diagonal = np.diagonal(bias, offset, axis1=1, axis2=2)
        assert (diagonal == diagonal[:, :1]).all()
    assert (bias[:, 0, 1] != bias[:, 1, 0]).all()  # before and after are told apart


def test_buckets_at_the_boundaries() -> None:
    """Where T5's buckets begin, for 32 buckets up to 128: eight exact ones, then 8·16^(b/8), rounded up."""
    begin = {8: 8, 12: 9, 16: 10, 23: 11, 32: 12, 46: 13, 64: 14, 91: 15}
    for distance, bucket in begin.items():
        np.testing.assert_array_equal(distance_bucket(np.array([distance - 1, distance])), [15 + bucket, 16 + bucket])
        np.testing.assert_array_equal(distance_bucket(np.array([1 - distance, -distance])), [bucket - 1, bucket])
    np.testing.assert_array_equal(distance_bucket(np.array([0, 1, -1, 7, -7, 500, -500])), [0, 17, 1, 23, 7, 31, 15])


def test_one_directional_buckets_up_to_the_episodes_length() -> None:
    """By hand for N = 8: four exact distances, then 4·2^(b/4), rounded up; all later tokens share bucket 0."""
    table = {3: 0, 1: 0, 0: 0, -1: 1, -2: 2, -3: 3, -4: 4, -5: 5, -6: 6, -7: 7, -8: 7, -100: 7}
    found = distance_bucket(np.array(list(table)), bidirectional=False, num_buckets=8, max_distance=8)
    np.testing.assert_array_equal(found, list(table.values()))
    config = override(preset_config("paper", "hypertransformer"), {"model": {"position_buckets": "one_directional"}})
    (bias, _) = build_model(config, key=jax.random.key(0)).trunk.position_biases
    assert bias.table.shape == (4, 32)
    whole = np.asarray(bias(32))
    assert len({tuple(column) for column in whole[:, -1].T}) == 31  # only 29 and 30 share one of the 32
    assert (whole[:, 0] == whole[:, :1, 0]).all()
