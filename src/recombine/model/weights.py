"""Access to the arrays of a model, or of any tree, by name."""

from collections.abc import Mapping
from typing import TypeVar

import equinox as eqx
import jax
import numpy as np

from recombine.errors import InputError

M = TypeVar("M")


def named_arrays(tree: object) -> dict[str, np.ndarray]:
    """Every array by its path in the tree: {'trunk.blocks.0.attention.query.weight': …}."""
    leaves, _ = jax.tree.flatten_with_path(eqx.filter(tree, eqx.is_array))
    return {_name(path): np.asarray(leaf) for path, leaf in leaves}


def replace_arrays(like: M, arrays: Mapping[str, np.ndarray], source: str) -> M:
    """The tree `like` with its arrays replaced by `arrays`, which must have the same names, shapes and types.

    `like` may contain shapes (`jax.ShapeDtypeStruct`) instead of arrays.
    """
    own, rest = eqx.partition(like, _has_shape)
    leaves, _ = jax.tree.flatten_with_path(own)
    expected = {_name(path): leaf for path, leaf in leaves}
    if missing := sorted(expected.keys() ^ arrays.keys()):
        raise InputError("weights", source, f"the model and the file differ in the parameter {missing[0]}")
    for name, value in expected.items():
        found = arrays[name]
        if (found.shape, found.dtype) != (value.shape, value.dtype):
            wanted = f"{name} is {found.dtype}{list(found.shape)}; the model has {value.dtype}{list(value.shape)}"
            raise InputError("weights", source, wanted)
    return eqx.combine(jax.tree.map_with_path(lambda path, _: jax.device_put(arrays[_name(path)]), own), rest)


def _has_shape(leaf: object) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def _name(path: tuple) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
