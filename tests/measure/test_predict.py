import equinox as eqx
import jax
import numpy as np

from recombine.config.preset import preset_config
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
