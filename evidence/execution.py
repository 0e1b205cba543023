"""Tasks of k active modules with the true latent: `python evidence/execution.py [DIRECTORY ...]`.

Does inference fail, or execution? Of the hypertransformers on `connected+`, the demo's and those in the directories;
some minutes. Writes execution.json.
"""

import sys

from measured import keep, main_runs

from recombine.measure.interventions import LatentMaps, intervene_on_latent
from recombine.measure.modules import fit_map, scaled_latent
from recombine.measure.scorecard import active_modules_episodes
from recombine.measure.snapshot import probe_episodes, forward_episodes
from recombine.run.load import load_model
from recombine.task.teacher import config_teacher


def main() -> None:
    found = []
    for path in main_runs("hypertransformer", sys.argv[1:]):
        config, model, _ = load_model(path)
        teacher = config_teacher(config)
        fitted_on = probe_episodes(config, teacher)
        inferred = forward_episodes(config, model, fitted_on).latent
        assert inferred is not None
        v = scaled_latent(teacher, fitted_on.latent)
        maps = LatentMaps(fit_map(v, inferred), fit_map(inferred, v))
        for k, episodes in active_modules_episodes(config, teacher):
            reading = forward_episodes(config, model, episodes)
            v = scaled_latent(teacher, episodes.latent)
            scores = intervene_on_latent(model, teacher, episodes, reading, v, maps)._asdict()
            row = {"study": path.parent.name, "seed": config.seed, "k": k}
            found.append(row | {kind: scores[kind] for kind in ("inferred", "true", "ceiling")})
    keep("execution", found)


if __name__ == "__main__":
    main()
