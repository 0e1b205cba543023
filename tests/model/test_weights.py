import jax
import numpy as np
import pytest

from recombine.config.preset import preset_config
from recombine.errors import InputError
from recombine.model.build import build_model
from recombine.model.weights import named_arrays, replace_arrays

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
