"""What the page needs to run models itself: weights, maps between latents, a teacher, and inputs.

The demo's are stored beside its archives, so that its explorer starts without JAX.
"""

from base64 import b64decode
from functools import cache
from pathlib import Path

import numpy as np
from safetensors.numpy import load

from recombine.config.model import HypertransformerConfig
from recombine.errors import InputError
from recombine.files import read_file
from recombine.record.codec import Record, decode
from recombine.serve.explorer.description import describe_model
from recombine.serve.explorer.exchange import ModelDescription
from recombine.storage.demo import demo_archives
from recombine.storage.reader import last_row, read_config
from recombine.storage.source import WEIGHTS, open_run
from recombine.story.pack import PackedModel, pack_model

STORED = "explorer.json"  # beside the demo's archive
LARGEST = 1 << 24


class PackedMap(Record, frozen=True):
    """x ↦ x weights + offset. Arrays are little-endian float32 in base64, by rows."""

    weights: str
    offset: str


class PackedTeacher(Record, frozen=True):
    """The modules and the readout of a teacher."""

    shape: tuple[int, ...]
    theta: str
    a: str


class PageScene(Record, frozen=True, kw_only=True):
    """A teacher, and the inputs of a draw. They are those of the scene that the server makes of the same draw."""

    teacher: PackedTeacher
    context: str
    """The inputs of the longest context; a shorter one has the first of them."""
    queries: str
    base: str
    """A point of the line through input space."""
    line: int
    """The number of points along the line."""
    read: int
    """The number of queries on which the latent is decoded."""


class PageMaps(Record, frozen=True):
    """The probe, and for a model with a latent the map from the teacher's scaled latent to its own."""

    probe: PackedMap | None
    to_inferred: PackedMap | None


class PageModel(Record, frozen=True):
    """A model that the page runs."""

    model: PackedModel
    maps: PageMaps


class StoredExplorer(Record, frozen=True):
    """What is stored for an archive of the demo. All its runs have the same teacher."""

    scene: PageScene
    """The scene of the first draw."""
    maps: dict[str, PageMaps]
    """The maps of each run, by its name."""


@cache
def stored_explorer(archive: Path) -> StoredExplorer | None:
    """What is stored beside an archive of the demo; None for any other archive."""
    if archive not in demo_archives().values():
        return None
    return decode(read_file(archive.with_name(STORED), LARGEST), StoredExplorer)


def stored_maps(path: Path) -> tuple[tuple[np.ndarray, np.ndarray] | None, ...] | None:
    """The weights and the offsets of the probe and of the map of a demo's model, None for other runs."""
    stored = stored_explorer(path.parent)
    if stored is None or path.name not in stored.maps:
        return None
    maps = stored.maps[path.name]
    return tuple(packed and _unpacked(packed) for packed in (maps.probe, maps.to_inferred))


def _unpacked(packed: PackedMap) -> tuple[np.ndarray, np.ndarray]:
    weights, offset = (np.frombuffer(b64decode(text), "<f4") for text in (packed.weights, packed.offset))
    return weights.reshape(-1, len(offset)), offset


def stored_description(path: Path) -> ModelDescription | None:
    """The description of a model of the demo, None for other runs."""
    stored = stored_explorer(path.parent)
    if stored is None or path.name not in stored.maps:
        return None
    source = open_run(path)
    config, row = read_config(source), last_row(source)
    assert row is not None, "the demo was measured"
    latent_dim = config.model.latent_dim if isinstance(config.model, HypertransformerConfig) else None
    return describe_model(config, row.step, latent_dim)


def stored_model(path: Path) -> PageModel | None:
    """A model of the demo, None for other runs."""
    stored, described = stored_explorer(path.parent), stored_description(path)
    if stored is None or described is None:
        return None
    source = open_run(path)
    packed = pack_model(read_config(source), load(source.read(WEIGHTS, LARGEST)), described.step, "single")
    return PageModel(packed, stored.maps[path.name])


def stored_scene(path: Path, draw: int, fresh: int | None) -> PageScene | None:
    """The first draw of the teacher of the demo's models, None for other runs and draws."""
    stored = stored_explorer(path.parent)
    return None if stored is None or draw or fresh is not None or path.name not in stored.maps else stored.scene


def check_in_page(described: ModelDescription) -> None:
    if not described.in_page:
        raise InputError("run", described.model, "the page cannot run this model; the server does")
