"""Masks, and supports that are drawn at random."""

from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from recombine.errors import InputError
from recombine.support import random_support
from recombine.support.masks import active_modules, components, format_mask, k_hot_masks, parse_mask
from recombine.support.random_support import sample_support


@given(st.integers(1, 9), st.data())
def test_k_hot_masks_are_all_of_them(num_modules: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, num_modules))
    masks = k_hot_masks(num_modules, k)
    assert set(masks) == {mask for mask in product((0, 1), repeat=num_modules) if sum(mask) == k}
    assert len(masks) == comb(num_modules, k)


@pytest.mark.parametrize(("num_modules", "k"), [(6, 0), (6, 7), (6, -1), (40, 20)])
def test_impossible_or_endless_k(num_modules: int, k: int) -> None:
    with pytest.raises(InputError, match="k = "):
        k_hot_masks(num_modules, k)


@given(st.lists(st.lists(st.integers(0, 1), min_size=5, max_size=5).filter(any), min_size=1, max_size=6))
def test_components_agree_with_scipy(masks: list[list[int]]) -> None:
    """Two modules are in one component exactly if a path of masks leads from one to the other."""
    together = [[int(any(mask[i] and mask[j] for mask in masks)) for j in range(5)] for i in range(5)]
    _, labels = connected_components(np.array(together), directed=False)
    covered = [i for i in range(5) if any(mask[i] for mask in masks)]
    expected = {tuple(i + 1 for i in covered if labels[i] == label) for label in labels[covered]}
    assert set(components([tuple(mask) for mask in masks])) == expected


@given(st.lists(st.integers(0, 1), min_size=1).filter(any))
def test_parsing_is_the_inverse_of_formatting(entries: list[int]) -> None:
    mask = tuple(entries)
    assert parse_mask("mask", format_mask(mask)) == parse_mask("mask", entries) == mask
    assert [mask[m - 1] for m in active_modules(mask)] == [1] * sum(mask)


@pytest.mark.parametrize(
    "value", ["", "012", "1a0", "１１", "-1", [], [1, 2], [1, True], [1.0, 0], [None], 110, None, {}]
)
def test_what_is_not_a_mask(value: object) -> None:
    with pytest.raises(InputError, match="zeros and ones"):
        parse_mask("mask", value)


@pytest.mark.parametrize("value", ["000000", [0, 0]])
def test_all_zero(value: object) -> None:
    with pytest.raises(InputError, match="at least one active module"):
        parse_mask("mask", value)


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
