"""What a run measures at every snapshot: the scores on each split, by mask, and the probe.

A seed's episodes are the same for every model and every snapshot of it.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import isfinite
from typing import Any, NamedTuple

from recombine.config import Config
from recombine.measure.predict import read
from recombine.measure.probe import fit_probe, score_probe
from recombine.measure.r2 import score, score_by_mask
from recombine.model.build import Model
from recombine.model.output import Reading
from recombine.stream import Stream
from recombine.task.episode import Episode
from recombine.task.names import CONTROL_SPLITS, EVAL_SPLITS, Split
from recombine.task.split import sample_masks, sample_split
from recombine.task.teacher import Teacher


class Examination(NamedTuple):
    """The episodes of each evaluation split, and those the probe is fitted on."""

    splits: dict[Split, Episode]
    probe: Episode


def evaluation_splits(config: Config) -> list[Split]:
    return [split for split in EVAL_SPLITS if split != "ood" or config.task.support.held_out]


def evaluation_episodes(config: Config, teacher: Teacher, split: Split) -> tuple[Teacher, Episode]:
    """A split's episodes, and the teacher that labels them (for the controls, one per episode)."""
    task, count = config.task, config.measure.episodes
    return sample_split(config.seed, split, teacher, task.support, task.episode_length, count)


def probe_episodes(config: Config, teacher: Teacher) -> Episode:
    """In distribution, from a stream of their own."""
    task, count = config.task, config.measure.episodes
    return sample_masks(config.seed, Stream.probe, teacher, task.support.masks, task.episode_length, count)


def examination(config: Config, teacher: Teacher) -> Examination:
    splits: dict[Split, Episode] = {}
    for split in evaluation_splits(config):
        splits[split] = evaluation_episodes(config, teacher, split)[1]
    return Examination(splits, probe_episodes(config, teacher))


def read_episodes(config: Config, model: Model, episodes: Episode) -> Reading:
    """By the configured path, always in float32."""
    return read(model, episodes, replace(config.compute, precision="float32"))


def measurements(config: Config, model: Model, on: Examination) -> Iterator[tuple[str, Any]]:
    """The entries of a row of metrics, one by one: between two of them a run can be asked to stop."""
    support = config.task.support
    probe = fit_probe(read_episodes(config, model, on.probe), on.probe.latent)
    decoded = {}
    for split, episodes in on.splits.items():
        reading = read_episodes(config, model, episodes)
        scores: dict[str, Any] = finite(score(reading.y, episodes)._asdict())
        if split not in CONTROL_SPLITS:
            by_mask = score_by_mask(reading.y, episodes, support.masks_of(split))
            scores["masks"] = {mask: finite(entry._asdict()) for mask, entry in by_mask.items()}
            if probe is not None:
                decoded[split] = score_probe(probe, reading, episodes.latent)
        yield split, scores
    if probe is None:
        yield "probe", None
        return
    latent = finite({split: found.latent for split, found in decoded.items()}) if probe.latent else None
    residual = {split: [or_none(r2) for r2 in found.residual] for split, found in decoded.items()}
    yield "probe", residual | {"latent": latent}


def finite(values: dict[str, Any]) -> dict[str, Any]:
    """JSON has no word but null for it: with one context pair, say, there is no variance to divide by."""
    return {name: or_none(value) for name, value in values.items()}


def or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not isfinite(value) else value
