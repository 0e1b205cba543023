"""Parameters, or any arrays of a tree, by name; and a model's in a safetensors file."""

from collections.abc import Mapping
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


def named_arrays(tree: object) -> dict[str, np.ndarray]:
    """{'trunk.blocks.0.attention.query.weight': …}: every array by its path in the tree."""
    leaves, _ = jax.tree.flatten_with_path(eqx.filter(tree, eqx.is_array))
    return {_name(path): np.asarray(leaf) for path, leaf in leaves}


def replace_arrays(like: M, arrays: Mapping[str, np.ndarray], source: str) -> M:
    """The tree `like` with its arrays taken from `arrays`: the same names, shapes and types, or an error."""
    expected = named_arrays(like)
    if missing := sorted(expected.keys() ^ arrays.keys()):
        raise InputError("weights", source, f"the model and the file differ in the parameter {missing[0]}")
    for name, value in expected.items():
        found = arrays[name]
        if (found.shape, found.dtype) != (value.shape, value.dtype):
            wanted = f"{name} is {found.dtype}{list(found.shape)}; the model has {value.dtype}{list(value.shape)}"
            raise InputError("weights", source, wanted)
    own, rest = eqx.partition(like, eqx.is_array)
    return eqx.combine(jax.tree.map_with_path(lambda path, _: jnp.asarray(arrays[_name(path)]), own), rest)


def save_weights(path: Path, model: object) -> None:
    save_file(named_arrays(model), path)


def load_weights(path: Path, like: M) -> M:
    """The model `like`, with its parameters taken from the file."""
    try:
        weights = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError("weights", str(path), f"not a readable safetensors file ({error})") from error
    return replace_arrays(like, weights, str(path))


def _name(path: tuple) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
