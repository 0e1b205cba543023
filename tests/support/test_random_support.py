from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.errors import InputError
from recombine.support import random_support
from recombine.support.random_support import sample_support


@given(st.integers(1, 7), st.integers(1, 7), st.integers(1, 40), st.booleans(), st.integers(0, 5), st.booleans())
@settings(max_examples=400)
def test_a_design_is_what_was_asked_for(
    num_modules: int, k: int, size: int, connected: bool, seed: int, grown: bool
) -> None:
    """Both when drawn by rejection, and when grown."""
    tries, random_support.REJECTION_TRIES = random_support.REJECTION_TRIES, 0 if grown else 50
    try:
        support = sample_support(num_modules, k, size, connected, seed)
    except InputError:
        return
    finally:
        random_support.REJECTION_TRIES = tries
    assert support.num_modules == num_modules
    assert len(support.masks) == size
    assert all(sum(mask) == k for mask in support.masks)
    assert support.connected == connected
    assert len(support.masks) + len(support.held_out) == comb(num_modules, k)


def exists(num_modules: int, k: int, size: int, connected: bool) -> bool:
    """Whether such a support exists, by brute force over all sets of masks."""
    from itertools import combinations

    from recombine.support.masks import components, k_hot_masks

    for masks in combinations(k_hot_masks(num_modules, k), size):
        groups = components(masks)
        if sum(map(len, groups)) == num_modules and (len(groups) == 1) == connected:
            return True
    return False


@pytest.mark.parametrize("connected", [True, False])
@pytest.mark.parametrize("num_modules", [1, 2, 3, 4, 5])
def test_it_refuses_exactly_what_does_not_exist(num_modules: int, connected: bool) -> None:
    for k in range(1, num_modules + 1):
        for size in range(1, comb(num_modules, k) + 1):
            try:
                sample_support(num_modules, k, size, connected, seed=0)
                designed = True
            except InputError:
                designed = False
            assert designed == exists(num_modules, k, size, connected), (num_modules, k, size, connected)


def test_the_seed_decides() -> None:
    first, again = sample_support(8, 2, 10, True, seed=1), sample_support(8, 2, 10, True, seed=1)
    assert first == again
    assert len({sample_support(8, 2, 10, True, seed=seed).masks for seed in range(20)}) > 15
