"""Appendix C.3: T5-style relative position biases (Raffel et al. 2020)."""

import jax
import numpy as np
import pytest

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
