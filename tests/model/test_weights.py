from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

from recombine.errors import InputError
from recombine.model.build import build_model
from recombine.model.weights import load_weights, named_arrays
from recombine.preset import preset_config

MODEL = build_model(preset_config("smoke", "hypertransformer"), key=jax.random.key(0))


def test_names_are_paths_in_the_model() -> None:
    weights = named_arrays(MODEL)
    assert {"theta", "latent.weight", "trunk.blocks.1.attention.query.weight"} <= set(weights)
    assert {"trunk.position_biases.0.table", "trunk.final_norm.bias"} <= set(weights)


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    path, weights = tmp_path / "model.safetensors", named_arrays(MODEL)
    bad = {
        "not a readable safetensors file": None,
        "differ in the parameter theta": {name: w for name, w in weights.items() if name != "theta"},
        "differ in the parameter extra": {**weights, "extra": np.zeros(3, np.float32)},
        r"theta is float32\[1, 2\]": {**weights, "theta": np.zeros((1, 2), np.float32)},
        "theta is float64": {**weights, "theta": weights["theta"].astype(np.float64)},
    }
    for message, content in bad.items():
        if content is None:
            path.write_bytes(b"\xff" * 100)
        else:
            save_file(content, path)
        with pytest.raises(InputError, match=message):
            load_weights(path, MODEL)
    with pytest.raises(InputError, match="not a readable"):
        load_weights(tmp_path / "missing", MODEL)
