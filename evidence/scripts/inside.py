"""Measures what models infer, and what they execute: `python evidence/scripts/inside.py`. Takes some minutes.

Uses the models trained on `connected+` whose parameters were kept, and writes into measured.json. "decoding": does the
probe decode the masks, or the weights within them? "execution": the hypertransformers on tasks of k active modules,
with the true latent: does inference fail, or execution?
"""

import numpy as np
from records import keep, trained_runs

from recombine.measure.latent.interventions import LatentMaps, intervene_on_latent
from recombine.measure.latent.module_recovery import fit_map, scaled_latent
from recombine.measure.predict import forward_episodes
from recombine.measure.probe import decoding_r2, fit_probe
from recombine.measure.ridge import Ridge
from recombine.measure.snapshot import snapshot_episodes
from recombine.model.interface import LatentModel
from recombine.record.codec import plain
from recombine.run.load import load_model
from recombine.task.evaluation import active_modules_episodes, probe_episodes
from recombine.task.teacher import config_teacher


def told(fit: Ridge, features: np.ndarray, z: np.ndarray, masks: np.ndarray) -> dict[str, float | None]:
    """R² over all tasks, R² of the variation within a mask, and how often the largest entries are those of the mask."""
    decoded = features @ fit.weights + fit.intercept
    of_mask = [masks == mask for mask in np.unique(masks)]
    moves, decoded_moves = (np.concatenate([a[one] - a[one].mean(axis=0) for one in of_mask]) for a in (z, decoded))
    within = 1 - np.sum((moves - decoded_moves) ** 2) / np.sum(moves**2)
    active = z > 0
    smallest_active = np.where(active, decoded, np.inf).min(axis=1)
    largest_other = np.where(active, -np.inf, decoded).max(axis=1)
    found = float(np.mean(smallest_active > largest_other))
    return {"all": decoding_r2(fit, features, z), "within": float(within), "mask": found}


def measure_decoding() -> None:
    found = []
    for study, source in [(name, source) for name in ("paper", "quick") for source in trained_runs(name, "*")]:
        config, model, _ = load_model(source.path)
        on = snapshot_episodes(config, config_teacher(config))
        probe = fit_probe(forward_episodes(config, model, on.probe), on.probe.latent)
        assert probe is not None
        for split in ("in_dist", "ood"):
            output, episodes = forward_episodes(config, model, on.splits[split]), on.splits[split]
            z, masks = np.asarray(episodes.latent, float), np.asarray(episodes.mask_index)
            places = {"last residual stream": (probe.residual[-1], np.asarray(output.residual, float)[:, -1])}
            if probe.latent is not None:
                places["inferred latent"] = (probe.latent, np.asarray(output.latent, float))
            for place, (fit, features) in places.items():
                row = {"study": study, "model": config.model.label, "seed": config.seed}
                found.append(row | {"place": place, "split": split} | told(fit, features, z, masks))
    keep("decoding", found)


def measure_execution() -> None:
    found = []
    runs = [(study, source) for study in ("paper", "quick") for source in trained_runs(study, "hypertransformer")]
    for study, source in runs:
        config, model, _ = load_model(source.path)
        assert isinstance(model, LatentModel)
        teacher = config_teacher(config)
        fitted_on = probe_episodes(config, teacher)
        inferred = forward_episodes(config, model, fitted_on).latent
        assert inferred is not None
        v = scaled_latent(teacher, fitted_on.latent)
        maps = LatentMaps(fit_map(v, inferred), fit_map(inferred, v))
        for k, episodes in active_modules_episodes(config, teacher):
            output = forward_episodes(config, model, episodes)
            v = scaled_latent(teacher, episodes.latent)
            scores = plain(intervene_on_latent(model, teacher, episodes, output, v, maps))
            row = {"study": study, "seed": config.seed, "k": k}
            found.append(row | {kind: scores[kind] for kind in ("inferred", "true", "ceiling")})
    keep("execution", found)


if __name__ == "__main__":
    measure_decoding()
    measure_execution()
