"""Packs the two models of a story for a page: their weights, and the facts.

The transformer's weights are in half precision. The hypertransformer has a quarter as many, and they stay in single
precision: explicit inference solves equations with them, which would amplify the rounding.
"""

from base64 import b64encode
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike
from safetensors.numpy import load

from recombine.config.model import HypertransformerConfig, TransformerConfig
from recombine.config.schema import Config
from recombine.errors import InputError
from recombine.files import read_file
from recombine.record.codec import Positive, Record, decode
from recombine.storage.demo import demo_archives
from recombine.storage.reader import last_row, read_config
from recombine.storage.source import WEIGHTS, open_run
from recombine.story.facts import StoryFacts

if TYPE_CHECKING:
    from recombine.story.pair import StoryPair

NORM_EPS = 1e-5  # equinox.nn.LayerNorm's own
FACTS = "story.json"  # beside the demo's archive
DEMO_PAIR = ("transformer-connected+-seed0", "hypertransformer-connected+-seed0")
LARGEST = 1 << 24

Precision = Literal["half", "single"]


class PackedOptions(Record, frozen=True):
    """The options of a model that its arrays do not show."""

    embed_dim: int
    num_heads: int
    num_layers: int
    causal: bool
    scale_scores: bool


class PackedModel(Record, frozen=True):
    """A model: its arrays in their order, little-endian in base64."""

    kind: str
    options: PackedOptions
    eps: Positive
    step: int
    parameters: int
    arrays: tuple[tuple[str, tuple[int, ...]], ...]
    precision: Precision
    weights: str


class Story(Record, frozen=True):
    """All that the page shows: network.js and teacher.js unpack it."""

    models: tuple[PackedModel, PackedModel]
    facts: StoryFacts


def check_computable(config: Config) -> None:
    """Refuse a model that the page's JavaScript does not compute, and a task other than the paper's."""
    model, task = config.model, config.task
    for name, value in task.variation.items():
        raise InputError(f"task.{name}", value, "a page supports only the paper's task")
    if not isinstance(model, TransformerConfig | HypertransformerConfig) or model.label != model.kind:
        raise InputError("model", model.label, "a page runs transformers and hypertransformers")
    for name in ("unit_norm", "scaled_forward"):
        if getattr(model, name, False):
            raise InputError(f"model.{name}", True, "a page supports only generated layers that are a sum of modules")
    if model.position_buckets != "t5":
        raise InputError("model.position_buckets", model.position_buckets, "a page supports only t5")


def pack_pair(pair: "StoryPair", facts: StoryFacts) -> Story:
    from recombine.model.weights import named_arrays

    first, second = (pack_model(one.config, named_arrays(one.model), one.step) for one in pair)
    return Story((first, second), facts)


def pack_model(
    config: Config, arrays: dict[str, np.ndarray], step: int, precision: Precision | None = None
) -> PackedModel:
    """Pack a model, in the story's precision unless `precision` is given."""
    model = config.model
    arrays = dict(sorted(arrays.items()))  # safetensors returns them in any order; the same models give the same page
    assert isinstance(model, TransformerConfig | HypertransformerConfig)
    precision = precision or ("half" if model.kind == "transformer" else "single")
    kind = "<f2" if precision == "half" else "<f4"
    for name, array in arrays.items():
        if not (np.abs(array) <= np.finfo(kind).max).all():
            raise InputError("weights", name, f"has a number beyond {precision} precision, which the page uses")
    data = b"".join(np.asarray(array, kind).tobytes() for array in arrays.values())
    options = PackedOptions(model.embed_dim, model.num_heads, model.num_layers, model.causal, model.scale_scores)
    shapes = tuple((name, array.shape) for name, array in arrays.items())
    count = sum(array.size for array in arrays.values())
    return PackedModel(model.kind, options, NORM_EPS, step, count, shapes, precision, b64encode(data).decode())


def packed_floats(array: ArrayLike) -> str:
    """Little-endian float32 in base64."""
    return b64encode(np.asarray(array, "<f4").tobytes()).decode()


@cache
def demo_story() -> Story:
    """The story of the demo's pair, from its archive and its stored facts: without JAX, in a fraction of a second."""
    archive = demo_archives()["paper"]
    facts = decode(read_file(archive.with_name(FACTS), LARGEST), StoryFacts)
    packed = []
    for name in DEMO_PAIR:
        source = open_run(archive / name)
        row = last_row(source)
        assert row is not None, "the demo was measured"
        packed.append(pack_model(read_config(source), load(source.read(WEIGHTS, LARGEST)), row.step))
    return Story((packed[0], packed[1]), facts)


def demo_paths() -> list[Path]:
    return [demo_archives()["paper"] / name for name in DEMO_PAIR]
