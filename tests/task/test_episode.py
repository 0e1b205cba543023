import jax
import numpy as np
import pytest

from recombine.support.split import EVAL_SPLITS, Split
from recombine.support.support import paper_support
from recombine.task.episode import sample_episodes
from recombine.task.sample import mask_rows, sample_split
from recombine.task.teacher import seed_teacher
from tests.compile_events import compiled_programs

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
