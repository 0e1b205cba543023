import itertools

import jax
import numpy as np
import pytest

from recombine.config.preset import preset_config
from recombine.config.toml import override
from recombine.errors import InputError
from recombine.model.build import build_model
from recombine.stream import Stream, stream_key
from recombine.task.sample import sample_split
from recombine.task.teacher import seed_teacher


def test_no_two_uses_share_a_key() -> None:
    """Every (seed, stream, step), and every key split or folded from it, is unique."""
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


def test_wide_floats_do_not_change_what_is_drawn() -> None:
    """The same (seed, stream, step) gives the same bits of float32 with and without 64-bit JAX."""

    def draw():
        config = preset_config("smoke", "hypertransformer")
        config = override(config, {"model": {"base_weights": True}})
        teacher = seed_teacher(0, config.task.support, 4, 4)
        batches = [sample_split(0, split, teacher, config.task.support, 5, 3) for split in ("in_dist", "control")]
        return teacher, batches, build_model(config, key=stream_key(0, Stream.init))

    narrow = jax.tree.leaves(draw())
    with jax.enable_x64(True):
        wide = jax.tree.leaves(draw())
    for a, b in zip(narrow, wide, strict=True):
        assert a.dtype == b.dtype
        if a.dtype == np.float32:  # sums may be formed in another order, draws may not
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(a, b)


def test_seeds_can_be_traced() -> None:
    """One compiled program can run many seeds."""
    keys = jax.vmap(lambda seed: jax.random.key_data(stream_key(seed, Stream.train, 3)))(np.arange(4, dtype=np.uint32))
    for seed in range(4):
        np.testing.assert_array_equal(keys[seed], jax.random.key_data(stream_key(seed, Stream.train, 3)))


def test_stream_numbers_are_fixed() -> None:
    """Every stored run depends on these numbers: the list may grow, but its entries never change."""
    names = ["teacher", "init", "train", "in_dist", "ood", "control", "probe", "select", "reference"]
    names += ["control_modules", "active_modules", "modules", "intervene", "explore", "trained_tasks", "novel"]
    names += ["dropout"]
    assert [stream.name for stream in sorted(Stream)] == names
    assert [int(stream) for stream in Stream] == list(range(len(names)))


@pytest.mark.parametrize("seed", [-1, 2**32, 2**63, True])
def test_bad_seeds(seed) -> None:
    with pytest.raises(InputError, match=r"seed = .*an integer from 0 to 4294967295"):
        stream_key(seed, Stream.train)
