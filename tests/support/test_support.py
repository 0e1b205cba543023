"""Masks, supports, and supports that are drawn at random."""

import json
from itertools import product
from math import comb
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from recombine.errors import InputError
from recombine.support import random_support
from recombine.support.masks import active_modules, components, format_mask, k_hot_masks, parse_mask
from recombine.support.parse import parse_support, unparse_support
from recombine.support.random_support import sample_support
from recombine.support.support import Support, make_support


@pytest.mark.parametrize(
    ("masks", "held_out", "message"),
    [
        ([], None, "at least one mask"),
        (["110", "01"], None, r"support.masks\[1\] = '01': has 2 modules where the first mask has 3"),
        (["110", "000"], None, r"support.masks\[1\] = '000': a mask needs at least one active module"),
        (["110", "012"], None, r"support.masks\[1\] = '012': a mask is made of zeros and ones"),
        (["110", "011", "110"], None, r"support.masks\[2\] = '110': this mask is repeated"),
        (["110", "100"], None, "no mask covers module 3"),
        (["110", "011"], ["110"], "support.held_out = '110': this mask is trained on"),
        (["110", "011"], ["101", "101"], r"support.held_out\[1\] = '101': this mask is repeated"),
        (["110", "011"], ["1010"], "has 4 modules"),
        (["110", "011"], ["000"], "at least one active module"),
        (["1" * 10 + "0" * 20, "0" * 10 + "1" * 20], None, "name the held-out masks yourself"),
    ],
)
def test_bad_supports(masks: list[str], held_out: list[str] | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_support("mine", masks, held_out)


def test_the_paper_s_names_are_of_its_masks(tmp_path: Path) -> None:
    (tmp_path / "connected+.txt").write_text("110\n011\n")
    for mine in (str(tmp_path / "connected+.txt"), {"name": "connected", "masks": ["110", "011"]}):
        with pytest.raises(InputError, match="a support of the paper has this name and other masks; use another name"):
            parse_support(mine)
    masks = parse_support("connected").masks
    assert parse_support({"name": "connected", "masks": masks[::-1]}).masks == masks[::-1]


def test_the_constructor_checks_too() -> None:
    with pytest.raises(InputError):
        Support("mine", ((1, 1), (1, 1)), ())
    with pytest.raises(InputError):
        Support("mine", ((1, 1),), ((1, 1),))


@given(st.integers(2, 6), st.data())
def test_held_out_completes_the_k_hot_masks(num_modules: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, num_modules))
    pool = k_hot_masks(num_modules, k)
    masks = data.draw(st.lists(st.sampled_from(pool), min_size=1, unique=True))
    try:
        support = make_support("mine", masks)
    except InputError as refused:
        assert "no mask covers" in str(refused)
        return
    assert set(support.masks) | set(support.held_out) == set(pool)
    assert not set(support.masks) & set(support.held_out)


def test_held_out_of_a_mixed_support_has_each_number_of_active_modules() -> None:
    support = make_support("mine", ["100", "011"])
    assert set(support.held_out) == {(0, 1, 0), (0, 0, 1), (1, 1, 0), (1, 0, 1)}


SAME = [(1, 1, 0), (0, 1, 1)]


@pytest.mark.parametrize(
    "text",
    [
        "110,011",
        "110 011",
        "110, 011",
        "110;011",
        "1,1,0;0,1,1",
        "(1,1,0),(0,1,1)",
        "[[1, 1, 0], [0, 1, 1]]",
        "(110)(011)",
    ],
)
def test_ways_to_write_masks_inline(text: str) -> None:
    assert list(parse_support(text).masks) == SAME


@pytest.mark.parametrize(
    "text",
    [
        "110\n011\n",
        "# two masks\n1 1 0  # the first\n\n0 1 1",
        "1,1,0\r\n0,1,1",
        "(1,1,0)\n(0,1,1)",
        "[[1,1,0],[0,1,1]]",
        '{"masks": ["110", "011"]}',
        json.dumps(make_support("x", SAME).as_dict()),
    ],
)
def test_ways_to_write_masks_in_a_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ünï support.txt"
    path.write_text(text, encoding="utf-8")
    assert list(parse_support(str(path)).masks) == SAME


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at least one mask"),
        ("# nothing\n", "at least one mask"),
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[" + "1" * 5000 + "]", "not valid JSON"),
        ('{"mask": []}', r"support.mask in support = \[\]: no such field \(did you mean 'masks'\?\)"),
        ('{"masks": 3}', "support.masks in support = 3: a list of masks"),
        ('{"masks": ["110","011"], "held_out": 4}', "support.held_out in support = 4"),
        ('{"masks": ["110","011"], "name": 4}', "support.name in support = 4: a text"),
        ("[3, 4]", "zeros and ones"),
        ("110\nabc", "zeros and ones"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "support"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        parse_support(str(path))


@pytest.mark.parametrize(
    "text", ["conected", "/no/such/file", "x" * 5000, "a\0b", "0-hot", "7-hot", "2-hot:0", "2-hot:999"]
)
def test_bad_names(text: str) -> None:
    with pytest.raises(InputError):
        parse_support(text)


def test_binary_and_directory(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x80")
    for path in (tmp_path, tmp_path / "binary"):
        with pytest.raises(InputError):
            parse_support(str(path))


def test_k_hot_by_name() -> None:
    assert parse_support("2-hot").masks == k_hot_masks(6, 2)
    assert parse_support("3-hot:5").masks == k_hot_masks(5, 3)
    assert parse_support("3-hot:5").held_out == ()


def test_held_out_can_be_named() -> None:
    support = parse_support("connected", "100100,010010")
    assert support.held_out == ((1, 0, 0, 1, 0, 0), (0, 1, 0, 0, 1, 0))


def test_no_ood_where_nothing_is_held_out() -> None:
    with pytest.raises(InputError, match="no ood"):
        parse_support("2-hot").masks_of("ood")


@given(st.text(max_size=30))
@settings(max_examples=300)
def test_no_text_crashes_the_parser(text: str) -> None:
    try:
        support = parse_support(text)
    except InputError:
        return
    assert parse_support(unparse_support(support)) == support


@pytest.mark.parametrize(
    "text",
    ["110,(101),(011)", "(1,1,0),(0,1,1),(1,0,1", "(110)x(011)", "110)(011)", "banana (101) 011", "((1,1,0)),011"],
)
def test_nothing_of_a_text_is_dropped(text: str) -> None:
    for arguments in ((text,), ("111", text)):
        with pytest.raises(InputError):
            parse_support(*arguments)


def test_many_masks_are_checked_in_no_time() -> None:
    """Half of 19,900 masks trained on, the others held out: a quadratic check would take minutes."""
    masks = k_hot_masks(200, 2)
    inside = [mask for mask in masks if sum(mask[::2]) != 1]
    across = [mask for mask in masks if sum(mask[::2]) == 1]
    support = make_support("mine", inside, across)
    assert len(support.masks) + len(support.held_out) == 19_900
    assert len(support.components) == 2


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
