"""Measures one snapshot, which makes one row of metrics: scores by split and mask, and the probe."""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import structs

from recombine.config.schema import Config
from recombine.measure.novel import NovelTasks, measure_snapshot_novel, snapshot_tasks
from recombine.measure.predict import forward_episodes
from recombine.measure.probe import fit_probe, score_probe
from recombine.measure.r2 import score, score_by_mask
from recombine.model.interface import Model
from recombine.record.novel import NovelScores
from recombine.record.score import LatentProbe, MetricsRow, ProbeScores, SplitScore
from recombine.support.split import CONTROL_SPLITS, Split
from recombine.task.episode import Episode
from recombine.task.evaluation import evaluation_episodes, evaluation_splits, probe_episodes
from recombine.task.teacher import Teacher


class SnapshotEpisodes(NamedTuple):
    """The episodes of each evaluation split, those the probe is fitted on, and those of the novel part."""

    splits: dict[Split, Episode]
    probe: Episode
    novel: NovelTasks | None


def snapshot_episodes(config: Config, teacher: Teacher) -> SnapshotEpisodes:
    splits: dict[Split, Episode] = {
        split: evaluation_episodes(config, teacher, split)[1] for split in evaluation_splits(config)
    }
    return SnapshotEpisodes(splits, probe_episodes(config, teacher), snapshot_tasks(config, teacher))


def measure_parts(
    config: Config, model: Model, on: SnapshotEpisodes
) -> Iterator[tuple[str, SplitScore | ProbeScores | NovelScores | None]]:
    """The entries of a row of metrics, one by one: a run can stop between two of them."""
    probe = fit_probe(forward_episodes(config, model, on.probe), on.probe.latent)
    decoded = {}
    for split, episodes in on.splits.items():
        output = forward_episodes(config, model, episodes)
        total, masks = score(output.y, episodes), None
        if split not in CONTROL_SPLITS:
            masks = score_by_mask(output.y, episodes, config.task.support.masks_of(split))
            if probe is not None:
                decoded[split] = score_probe(probe, output, episodes.latent)
        yield split, SplitScore(**structs.asdict(total), masks=masks)
    if on.novel is not None:
        yield "novel", measure_snapshot_novel(config, model, on.novel)
    if probe is None:
        yield "probe", None
        return
    residual = {split: found.residual for split, found in decoded.items()}
    latent = LatentProbe(**{split: found.latent for split, found in decoded.items()}) if probe.latent else None
    yield "probe", ProbeScores(**residual, latent=latent)


def measure_snapshot(config: Config, model: Model, teacher: Teacher, step: int) -> MetricsRow:
    """A complete row of metrics, for a model outside training."""
    parts = dict(measure_parts(config, model, snapshot_episodes(config, teacher)))
    return MetricsRow(step=step, loss=None, **parts)  # pyright: ignore[reportArgumentType]
