import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recombine.errors import InputError
from recombine.task.mask import k_hot_masks
from recombine.task.teacher import Teacher, check_teacher, init_teacher

MASKS = k_hot_masks(3, 2)


def teacher(theta: np.ndarray, a: np.ndarray | None = None) -> Teacher:
    return Teacher(jnp.asarray(theta, jnp.float32), jnp.ones(theta.shape[1]) if a is None else jnp.asarray(a))


def draw() -> np.ndarray:
    return np.array(init_teacher(jax.random.key(0), 3, 4, 5).theta)


def test_a_drawn_teacher_passes() -> None:
    check_teacher(teacher(draw()), MASKS)


def test_dependent_modules_that_cannot_cancel_pass() -> None:
    theta = draw()
    theta[1] = 2 * theta[0]  # Σ z_m θ_m = (z₁ + 2 z₂) θ₁, never 0 for z ≥ 0
    check_teacher(teacher(theta), MASKS)


def test_modules_that_can_cancel_are_refused() -> None:
    theta = draw()
    theta[1] = -2 * theta[0]
    with pytest.raises(InputError, match=r"modules 1, 2.*operator norm 0"):
        check_teacher(teacher(theta), MASKS)


def test_a_zero_module_is_refused() -> None:
    theta = draw()
    theta[2] = 0
    with pytest.raises(InputError, match="operator norm 0"):
        check_teacher(teacher(theta), k_hot_masks(3, 1))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_is_refused(value: float) -> None:
    theta = draw()
    theta[1, 2, 3] = value
    with pytest.raises(InputError, match=r"teacher\.theta.*finite"):
        check_teacher(teacher(theta), MASKS)
    with pytest.raises(InputError, match=r"teacher\.a.*finite"):
        check_teacher(teacher(draw(), np.full(5, value, np.float32)), MASKS)
