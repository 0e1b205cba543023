"""Measures whether the probe decodes the masks or the weights within them: `python evidence/scripts/decoding.py`.

Uses the models trained on `connected+` whose parameters were kept. Writes measured/decoding.json. Takes some minutes.
"""

import numpy as np
from results import keep, trained_runs

from recombine.measure.predict import forward_episodes
from recombine.measure.probe import decoding_r2, fit_probe
from recombine.measure.ridge import Ridge
from recombine.measure.snapshot import snapshot_episodes
from recombine.run.load import load_model
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


def main() -> None:
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


if __name__ == "__main__":
    main()
