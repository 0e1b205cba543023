"""The meta-learned hypernetwork; names and sizes of any model's weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recombine.config.model import CustomModelConfig
from recombine.config.preset import preset_config
from recombine.config.toml import override
from recombine.errors import InputError
from recombine.model.architecture.hypernetwork import Hypernetwork
from recombine.model.build import build_model
from recombine.model.custom import check_custom
from recombine.model.weights import named_arrays, replace_arrays
from recombine.task.sample import sample_split
from recombine.task.teacher import config_teacher

KIND = "recombine.model.architecture.hypernetwork:Hypernetwork"
BASE = preset_config("smoke", "hypertransformer")


def config_with(**options):
    return override(BASE, {"model": {"kind": KIND, "options": options}})


def test_the_start_is_improved_on_the_context() -> None:
    config = config_with(inference_steps=2, latent_dim=5, hidden_dim=8)
    check_custom(config)
    model = build_model(config, key=jax.random.key(0))
    assert isinstance(model, Hypernetwork)
    _, episodes = sample_split(0, "train", config_teacher(config), config.task.support, 12, 2)
    one, other = (model(episodes.context_x[i], episodes.context_y[i], episodes.query_x[0]) for i in range(2))
    expected = model.infer(model.start, episodes.context_x[0], episodes.context_y[0])
    np.testing.assert_allclose(one.trace.latent, expected, rtol=1e-6)
    np.testing.assert_allclose(one.y, model.execute(expected, episodes.query_x[0]), rtol=1e-6)
    assert one.trace.latent is not None
    assert not np.allclose(one.trace.latent, other.trace.latent, atol=1e-3)

    def fit(z: jax.Array) -> float:
        labels = jax.vmap(model.execute, in_axes=(None, 0))(z, episodes.context_x[0])
        return float(jnp.sum((labels - episodes.context_y[0]) ** 2))

    assert fit(one.trace.latent) < fit(model.start)


def test_it_has_steps_unless_told_otherwise() -> None:
    model = build_model(config_with(), key=jax.random.key(0))
    assert model.log_damping.shape == (3,)


@pytest.mark.parametrize("options", [{"embed_dim": 8}, {"inference_steps": 0}, {"hidden_dim": 0}])
def test_bad_options(options: dict) -> None:
    config = config_with(**options)
    assert isinstance(config.model, CustomModelConfig)
    with pytest.raises(InputError, match=next(iter(options))):
        build_model(config, key=jax.random.key(0))


MODEL = build_model(preset_config("smoke", "hypertransformer"), key=jax.random.key(0))


def test_names_are_paths_in_the_model() -> None:
    weights = named_arrays(MODEL)
    assert {"theta", "latent.weight", "trunk.blocks.1.attention.query.weight"} <= set(weights)
    assert {"trunk.position_biases.0.table", "trunk.final_norm.bias"} <= set(weights)


def test_arrays_that_do_not_fit() -> None:
    weights = named_arrays(MODEL)
    bad = {
        "differ in the parameter theta": {name: w for name, w in weights.items() if name != "theta"},
        "differ in the parameter extra": {**weights, "extra": np.zeros(3, np.float32)},
        r"theta is float32\[1, 2\]": {**weights, "theta": np.zeros((1, 2), np.float32)},
        "theta is float64": {**weights, "theta": weights["theta"].astype(np.float64)},
    }
    for message, content in bad.items():
        with pytest.raises(InputError, match=message):
            replace_arrays(MODEL, content, "a file")
