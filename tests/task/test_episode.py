"""Teachers and episodes, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recombine.errors import InputError
from recombine.support.masks import k_hot_masks
from recombine.support.split import EVAL_SPLITS, Split
from recombine.support.support import make_support, paper_support
from recombine.task.episode import sample_episodes
from recombine.task.sample import mask_rows, sample_split
from recombine.task.teacher import HypernetworkTeacher, check_teacher, init_teacher, seed_teacher
from tests.compile_events import compiled_programs

MASKS = k_hot_masks(3, 2)


def teacher(theta: np.ndarray, a: np.ndarray | None = None) -> HypernetworkTeacher:
    readout = np.ones(theta.shape[1], np.float32) if a is None else a
    return HypernetworkTeacher(jnp.asarray(theta, jnp.float32), jnp.asarray(readout))


def draw() -> np.ndarray:
    return np.array(init_teacher(jax.random.key(0), 3, 4, 5).theta)


def test_a_drawn_teacher_passes() -> None:
    check_teacher(teacher(draw()), MASKS)


def test_one_zero_module_passes_where_it_is_never_alone() -> None:
    theta = draw()
    theta[2] = 0
    check_teacher(teacher(theta), MASKS)
    with pytest.raises(InputError, match=r"the mask \(3\) are 0: W has operator norm 0"):
        check_teacher(teacher(theta), k_hot_masks(3, 1))


def test_episodes_of_a_bad_teacher_are_refused_not_nan() -> None:
    theta = draw()
    theta[1:] = 0
    support = make_support("mine", ["110", "011"])
    with pytest.raises(InputError, match="operator norm 0"):
        sample_split(0, "in_dist", teacher(theta), support, 4, 5)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_is_refused(value: float) -> None:
    theta = draw()
    theta[1, 2, 3] = value
    with pytest.raises(InputError, match=r"teacher\.theta.*finite"):
        check_teacher(teacher(theta), MASKS)
    with pytest.raises(InputError, match=r"teacher\.a.*finite"):
        check_teacher(teacher(draw(), np.full(5, value, np.float32)), MASKS)


def test_a_teacher_of_one_input_and_one_unit_works() -> None:
    """W(z) is then ±1, whatever z is."""
    support = make_support("mine", ["110", "011"])
    for seed in range(5):
        drawn = init_teacher(jax.random.key(seed), 3, 1, 1)
        _, episodes = sample_split(seed, "in_dist", drawn, support, 4, 50)
        assert np.isfinite(episodes.query_y).all()


SUPPORT = paper_support("connected+")
TEACHER = seed_teacher(0, SUPPORT, 5, 7)


def leaves(tree: object) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def test_a_shorter_batch_is_the_start_of_a_longer_one() -> None:
    masks = mask_rows(SUPPORT.masks).rows[: len(SUPPORT.masks)]
    long = sample_episodes(jax.random.key(1), TEACHER, masks, 6, 20)
    short = sample_episodes(jax.random.key(1), TEACHER, masks, 6, 8)
    for a, b in zip(leaves(long), leaves(short), strict=True):
        np.testing.assert_array_equal(a[:8], b)


@pytest.mark.parametrize("split", EVAL_SPLITS)
def test_latents_belong_to_the_masks_of_the_split(split: Split) -> None:
    _, episodes = sample_split(0, split, TEACHER, SUPPORT, 4, 300)
    masks = np.asarray(SUPPORT.masks_of(split))
    active = np.asarray(episodes.latent) > 0
    np.testing.assert_array_equal(active, masks[np.asarray(episodes.mask_index)] == 1)
    assert set(np.asarray(episodes.mask_index)) == set(range(len(masks)))


def test_splits_share_no_input() -> None:
    batches = [
        np.asarray(sample_split(0, split, TEACHER, SUPPORT, 4, 200)[1].query_x) for split in ("train", *EVAL_SPLITS)
    ]
    rows = np.concatenate(batches)
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_steps_and_seeds_share_no_input() -> None:
    batches = [
        np.asarray(sample_split(seed, "train", TEACHER, SUPPORT, 4, 50, step=step)[1].query_x)
        for seed in (0, 1)
        for step in (0, 1, 2)
    ]
    rows = np.concatenate(batches)
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_evaluation_episodes_are_the_same_every_time() -> None:
    for a, b in zip(*(leaves(sample_split(3, "ood", TEACHER, SUPPORT, 4, 10)) for _ in range(2)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("split", ["ood", "control"])
def test_in_pieces_one_program_serves_any_number_of_episodes(split: Split) -> None:
    whole = leaves(sample_split(2, split, TEACHER, SUPPORT, 4, 300)[1])
    sample_split(2, split, TEACHER, SUPPORT, 4, 7, in_pieces=True)
    with compiled_programs() as compiled:
        found = {
            count: leaves(sample_split(2, split, TEACHER, SUPPORT, 4, count, in_pieces=True)[1]) for count in (1, 300)
        }
    assert not compiled
    for count, arrays in found.items():
        for a, b in zip(arrays, whole, strict=True):
            np.testing.assert_allclose(a, b[:count], rtol=1e-5, atol=1e-6)
