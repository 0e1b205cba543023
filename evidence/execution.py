"""Tasks of k active modules with the true latent: does inference fail, or execution? `python evidence/execution.py`.

Of the hypertransformers in src/recombine/demo, on `connected+`; some minutes. Writes execution.json.
"""

import json
from pathlib import Path

from recombine.cli.serve import demo_directory
from recombine.experiment.evaluate import probe_episodes, read_episodes
from recombine.experiment.scorecard import active_modules_episodes
from recombine.experiment.trained import load_trained
from recombine.measure.intervene import LatentMaps, intervene_on_latent
from recombine.measure.modules import fit_map, scaled_latent
from recombine.train.step import config_teacher

HERE = Path(__file__).parent


def main() -> None:
    found = []
    for path in sorted(demo_directory().glob("*/hypertransformer-connected+-seed0")):
        config, model, _ = load_trained(path)
        teacher = config_teacher(config)
        fitted_on = probe_episodes(config, teacher)
        inferred = read_episodes(config, model, fitted_on).latent
        assert inferred is not None
        v = scaled_latent(teacher, fitted_on.latent)
        maps = LatentMaps(fit_map(v, inferred), fit_map(inferred, v))
        for k, episodes in active_modules_episodes(config, teacher):
            reading = read_episodes(config, model, episodes)
            v = scaled_latent(teacher, episodes.latent)
            scores = intervene_on_latent(model, teacher, episodes, reading, v, maps)._asdict()
            row = {"study": path.parent.name, "k": k}
            found.append(row | {kind: scores[kind] for kind in ("inferred", "true", "ceiling")})
    (HERE / "execution.json").write_text("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n")


if __name__ == "__main__":
    main()
