import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recombine.errors import InputError
from recombine.support.masks import k_hot_masks
from recombine.support.support import make_support
from recombine.task.sample import sample_split
from recombine.task.teacher import HypernetworkTeacher, check_teacher, init_teacher

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
