import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recombine.config.preset import preset_config
from recombine.measure import predict as predict_module
from recombine.measure.predict import predict
from recombine.model.build import build_model
from recombine.task.sample import sample_split
from recombine.task.teacher import seed_teacher


def test_chunks_do_not_change_the_predictions() -> None:
    """Many chunks, with and without a remainder: each episode gets its own prediction, in order."""
    config = preset_config("smoke", "transformer")
    model = build_model(config, key=jax.random.key(0))
    alone = eqx.filter_jit(model)
    teacher = seed_teacher(0, config.task.support, 4, 4)
    for count in (541, 500):  # a prime number, and one with divisors
        _, episodes = sample_split(0, "in_dist", teacher, config.task.support, 8, count)
        predicted = np.asarray(predict(model, episodes))
        assert predicted.shape == (count,)
        for i in (0, 1, 249, 250, 255, 256, count - 1):
            one = alone(episodes.context_x[i], episodes.context_y[i], episodes.query_x[i]).y
            np.testing.assert_allclose(predicted[i], one, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("total", [1, 5, 6, 7])
def test_chunks_without_a_remainder(total: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function is traced once: what is left over is no second program beside the first."""
    monkeypatch.setattr(predict_module, "CHUNK", 3)
    shapes = []

    def twice(pair: tuple[jax.Array, jax.Array]) -> jax.Array:
        shapes.append(pair[0].shape)
        return 2 * pair[0].sum() + pair[1]

    tree = (jnp.arange(4.0 * total).reshape(total, 4), jnp.arange(total))
    found = predict_module.map_in_chunks(twice, tree)
    np.testing.assert_array_equal(found, 2 * np.arange(4.0 * total).reshape(total, 4).sum(axis=1) + np.arange(total))
    assert set(shapes) == {(4,)}
    assert len(shapes) == 1
