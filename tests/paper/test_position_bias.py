"""Appendix C.3: T5-style relative position biases (Raffel et al. 2020)."""

import jax
import numpy as np
import pytest

from recombine.config.preset import preset_config
from recombine.config.toml import override
from recombine.model.build import build_model
from recombine.model.layer.position import PositionBias, distance_bucket

from .numpy_models import t5_bucket


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
