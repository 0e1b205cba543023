import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.errors import InputError
from recombine.support.masks import k_hot_masks
from recombine.support.parse import parse_support, unparse_support
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
