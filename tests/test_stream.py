import itertools

import jax
import numpy as np
import pytest

from recombine.errors import InputError
from recombine.stream import Stream, stream_key


def test_no_two_uses_share_a_key() -> None:
    """Every (seed, stream, step), and what is split or folded from it, is a key of its own."""
    keys = [
        stream_key(seed, stream, step)
        for seed, stream, step in itertools.product((0, 1, 2, 2**31, 2**32 - 1), Stream, (0, 1, 2, 8, 99_999))
    ]
    children = [child for key in keys for child in jax.random.split(key, 3)]
    data = {tuple(np.asarray(jax.random.key_data(key)).tolist()) for key in keys + children}
    assert len(data) == len(keys) + len(children)


def test_a_key_is_a_pure_function_of_seed_stream_and_step() -> None:
    jitted = jax.jit(lambda step: jax.random.key_data(stream_key(7, Stream.train, step)))
    for step in (0, 3, 12345):
        assert np.array_equal(jitted(step), jax.random.key_data(stream_key(7, Stream.train, step)))


def test_stream_numbers_are_fixed() -> None:
    """They are part of every run's identity: this list may grow, and never change."""
    names = ["teacher", "init", "train", "in_dist", "ood", "control", "probe", "select", "reference"]
    assert [stream.name for stream in sorted(Stream)] == names
    assert [int(stream) for stream in Stream] == list(range(len(names)))


@pytest.mark.parametrize("seed", [-1, 2**32, 2**63, True])
def test_bad_seeds(seed) -> None:
    with pytest.raises(InputError, match=r"seed = .*an integer from 0 to 4294967295"):
        stream_key(seed, Stream.train)
