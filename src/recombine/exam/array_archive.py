"""Reads and writes `.npz` files: plain arrays by name, never pickled objects."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from recombine.checks import MOST_NUMBERS
from recombine.errors import InputError
from recombine.files import read_named_bytes, replacing

MOST_BYTES = 8 * MOST_NUMBERS  # as many numbers as a file may hold, in float64

Arrays = dict[str, np.ndarray]


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    with replacing("out", path) as temporary:
        np.savez(temporary, allow_pickle=False, **dict(arrays))


def read_arrays(field: str, path: Path) -> Arrays:
    """Every array of a file that the user named. A file that unpacks to more than the limit is not unpacked."""
    data = read_named_bytes(field, path, MOST_BYTES)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > MOST_BYTES:
            raise InputError(field, str(path), f"unpacks to {size:,} bytes; at most {MOST_BYTES:,}")
        with np.load(io.BytesIO(data), allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except InputError:
        raise
    except Exception as error:  # zipfile and NumPy raise a dozen kinds for a file that is damaged or no .npz
        what = "an .npz file of plain arrays, as numpy.savez writes it"
        raise InputError(field, str(path), f"cannot be read ({type(error).__name__}); {what}") from error
