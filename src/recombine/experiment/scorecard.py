"""What is measured of a finished run besides its metrics: the scorecard."""

import json
from collections.abc import Iterator, Mapping
from math import comb
from pathlib import Path
from typing import Any

from recombine.config import Config
from recombine.errors import InputError
from recombine.experiment.evaluate import (
    evaluation_episodes,
    evaluation_splits,
    finite,
    or_none,
    probe_episodes,
    read_episodes,
)
from recombine.experiment.trained import Trained
from recombine.files import NotAFile, read_file, replace_file, where_allowed
from recombine.measure.intervene import LatentMaps, intervene_on_latent, intervene_on_subspace
from recombine.measure.modules import Recovered, fit_map, recover_modules, scaled_latent
from recombine.measure.probe import fit_probe
from recombine.measure.r2 import score
from recombine.measure.token_probe import score_token_probe, token_moments
from recombine.model.build import Model, count_parameters
from recombine.model.trunk import TrunkModel
from recombine.stream import Stream, stream_key
from recombine.task.episode import Episode, sample_input
from recombine.task.mask import MOST_MASKS, format_mask, k_hot_masks
from recombine.task.names import CONTROL_SPLITS
from recombine.task.split import sample_masks
from recombine.task.teacher import Teacher
from recombine.train.step import config_teacher

SCORECARD = "scorecard.json"
FORMAT = 3
LARGEST = 1 << 24
NUM_INPUTS = 4_000  # on which modules are compared


def make_scorecard(config: Config, model: Model, step: int) -> dict[str, Any]:
    """All of it, as it is stored."""
    teacher = config_teacher(config)
    card: dict[str, Any] = {"format": FORMAT, "step": step, "num_parameters": count_parameters(model)}
    card["active_modules"] = {
        str(k): finite(score(read_episodes(config, model, episodes).y, episodes)._asdict())
        for k, episodes in active_modules_episodes(config, teacher)
    }
    fitted_on = probe_episodes(config, teacher)
    reading = read_episodes(config, model, fitted_on)
    splits = {
        s: evaluation_episodes(config, teacher, s)[1] for s in evaluation_splits(config) if s not in CONTROL_SPLITS
    }
    card["probe_tokens"] = _token_probes(config, model, fitted_on, splits)
    card["modules"] = card["interventions"] = None
    if reading.latent is not None and hasattr(model, "execute"):
        executes: Any = model
        v = scaled_latent(teacher, fitted_on.latent)
        maps = LatentMaps(fit_map(v, reading.latent), fit_map(reading.latent, v))
        x = sample_input(stream_key(config.seed, Stream.modules), (NUM_INPUTS, config.task.input_dim))
        recovery = recover_modules(executes, teacher, v, reading.latent, x)
        card["modules"] = {
            "map_r2": or_none(recovery.map_r2),
            "single": [{"module": i} | _recovered(config, entry) for i, entry in enumerate(recovery.single, start=1)],
            "pairs": [_recovered(config, entry) for entry in recovery.pairs],
        }
        card["interventions"] = {"kind": "latent"} | {
            split: finite(
                intervene_on_latent(
                    executes,
                    teacher,
                    episodes,
                    read_episodes(config, model, episodes),
                    scaled_latent(teacher, episodes.latent),
                    maps,
                )._asdict()
            )
            for split, episodes in splits.items()
        }
    elif isinstance(model, TrunkModel) and (probe := fit_probe(reading, fitted_on.latent)) is not None:
        readings = {split: read_episodes(config, model, episodes) for split, episodes in splits.items()}
        points = []
        for point, fit in enumerate(probe.residual[1:], start=1):
            key = stream_key(config.seed, Stream.intervene, point)
            points.append(
                {"point": point}
                | {
                    split: finite(intervene_on_subspace(model, episodes, readings[split], fit, point, key)._asdict())
                    for split, episodes in splits.items()
                }
            )
        card["interventions"] = {"kind": "subspace", "points": points}
    return card


def _token_probes(config: Config, model: Model, fitted_on: Episode, splits: Mapping[str, Episode]) -> Any:
    """The probe's other readings: the context's tokens, each or their mean."""
    fitted = token_moments(model, fitted_on)
    if fitted is None:
        return None
    found: dict[str, dict[str, list[float | None]]] = {"each": {}, "mean": {}}
    for split, episodes in splits.items():
        scored = token_moments(model, episodes)
        assert scored is not None
        for name, values in score_token_probe(fitted, scored, config.task.num_modules)._asdict().items():
            found[name][split] = [or_none(r2) for r2 in values]
    return found


def active_modules_episodes(config: Config, teacher: Teacher) -> Iterator[tuple[int, Episode]]:
    """Tasks of k active modules, all masks of k alike, for each k."""
    task = config.task
    for k in range(1, task.num_modules + 1):
        if comb(task.num_modules, k) > MOST_MASKS:
            continue
        masks, count = k_hot_masks(task.num_modules, k), config.measure.episodes
        yield k, sample_masks(config.seed, Stream.active_modules, teacher, masks, task.episode_length, count, step=k)


def _recovered(config: Config, entry: Recovered) -> dict[str, Any]:
    values = finite({"r2": entry.r2, "ceiling": entry.ceiling})
    return {"mask": format_mask(entry.mask), "trained": entry.mask in config.task.support.masks} | values


def read_scorecard(run: Path) -> dict[str, Any] | None:
    """A run's scorecard, or None where there is none yet."""
    path = run / SCORECARD
    if not path.exists():
        return None
    try:
        card = json.loads(read_file(path, LARGEST))
    except (NotAFile, ValueError) as error:
        raise InputError("scorecard", str(path), f"cannot be read ({error})") from error
    return card if isinstance(card, dict) and card.get("format") == FORMAT else None


def store_scorecard(run: Path, trained: Trained) -> dict[str, Any]:
    """The scorecard of a run's newest checkpoint, measured if it is not there yet, and kept where it can be."""
    card = read_scorecard(run)
    if card is None or card["step"] != trained.step:
        card = make_scorecard(*trained)
        with where_allowed():
            replace_file(run / SCORECARD, (json.dumps(card, indent=1, allow_nan=False) + "\n").encode())
    return card
