"""A model's parameters as named arrays, and in a safetensors file."""

from pathlib import Path
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from recombine.errors import InputError

M = TypeVar("M")


def named_weights(model: object) -> dict[str, np.ndarray]:
    """{'trunk.blocks.0.attention.query.weight': …}: every parameter by its path in the model."""
    leaves, _ = jax.tree.flatten_with_path(eqx.filter(model, eqx.is_inexact_array))
    return {_name(path): np.asarray(leaf) for path, leaf in leaves}


def save_weights(path: Path, model: object) -> None:
    save_file(named_weights(model), path)


def load_weights(path: Path, like: M) -> M:
    """The model `like`, with its parameters taken from the file: the same names, shapes and types, or an error."""
    try:
        weights = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError("weights", str(path), f"not a readable safetensors file ({error})") from error
    expected = named_weights(like)
    if missing := sorted(expected.keys() ^ weights.keys()):
        raise InputError("weights", str(path), f"the model and the file differ in the parameter {missing[0]}")
    for name, value in expected.items():
        found = weights[name]
        if (found.shape, found.dtype) != (value.shape, value.dtype):
            wanted = f"{name} is {found.dtype}{list(found.shape)}; the model has {value.dtype}{list(value.shape)}"
            raise InputError("weights", str(path), wanted)
    parameters, rest = eqx.partition(like, eqx.is_inexact_array)
    parameters = jax.tree.map_with_path(lambda path, _: jnp.asarray(weights[_name(path)]), parameters)
    return eqx.combine(parameters, rest)


def _name(path: tuple) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
