"""What the probe decodes, the masks or the weights within them: `python evidence/decoding.py [DIRECTORY ...]`.

Of the trained models on `connected+`, the demo's and those in the directories; some minutes. Writes decoding.json.
"""

import sys

import numpy as np
from measured import keep, main_runs

from recombine.measure.probe import decoding_r2, fit_probe
from recombine.measure.ridge import Ridge
from recombine.measure.snapshot import examination, forward_episodes
from recombine.run.load import load_model
from recombine.task.teacher import config_teacher


def told(fit: Ridge, features: np.ndarray, z: np.ndarray, masks: np.ndarray) -> dict[str, float]:
    """R² over all tasks; of how z moves within a mask; and in how many tasks the largest entries are the mask's."""
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
    for path in main_runs("*", sys.argv[1:]):
        config, model, _ = load_model(path)
        on = examination(config, config_teacher(config))
        probe = fit_probe(forward_episodes(config, model, on.probe), on.probe.latent)
        assert probe is not None
        for split in ("in_dist", "ood"):
            reading, episodes = forward_episodes(config, model, on.splits[split]), on.splits[split]
            z, masks = np.asarray(episodes.latent, float), np.asarray(episodes.mask_index)
            places = {"last residual stream": (probe.residual[-1], np.asarray(reading.residual, float)[:, -1])}
            if probe.latent is not None:
                places["inferred latent"] = (probe.latent, np.asarray(reading.latent, float))
            for place, (fit, features) in places.items():
                row = {"study": path.parent.name, "model": config.model.label, "seed": config.seed}
                found.append(row | {"place": place, "split": split} | told(fit, features, z, masks))
    keep("decoding", found)


if __name__ == "__main__":
    main()
