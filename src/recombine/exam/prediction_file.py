"""Files of predictions that any program made for a file of episodes."""

from pathlib import Path

import numpy as np
from jaxtyping import Float

from recombine.errors import InputError
from recombine.exam.array_archive import read_arrays
from recombine.exam.episode_file import EpisodeFile


def read_predictions(path: Path, file: EpisodeFile) -> Float[np.ndarray, "E"]:
    """One finite number for each episode. `digest` must be that of the episodes which were predicted."""
    arrays = read_arrays("predictions", path)
    for name in ("prediction", "digest"):
        if name not in arrays:
            what = f"has no array {name}; it needs prediction, and digest as in the file of episodes"
            raise InputError("predictions", str(path), what)
    digest = str(arrays["digest"])
    if digest != file.digest:
        what = f"are for other episodes: their digest is {digest[:12]}…, that of the episodes is {file.digest[:12]}…"
        raise InputError("predictions", str(path), what)
    found = arrays["prediction"]
    expected = (sum(len(part.episodes.query_y) for part in file.drawn.values()),)
    if found.dtype.kind not in "fiu":
        raise InputError("predictions", str(path), f"prediction has type {found.dtype}; it must be real numbers")
    if found.shape != expected:
        what = f"prediction has shape {found.shape}; one number per episode has shape {expected}"
        raise InputError("predictions", str(path), what)
    bad = np.flatnonzero(~np.isfinite(found))
    if bad.size:
        what = f"{bad.size} of {len(found)} predictions are not finite, the first at episode {bad[0]}"
        raise InputError("predictions", str(path), what)
    return found.astype(np.float64)
