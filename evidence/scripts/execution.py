"""Measures hypertransformers on tasks of k active modules with the true latent: `python evidence/scripts/execution.py`.

The question is whether inference fails, or execution. Uses the hypertransformers trained on `connected+` whose
parameters were kept. Writes measured/execution.json. Takes some minutes.
"""

from results import keep, trained_runs

from recombine.measure.latent.interventions import LatentMaps, intervene_on_latent
from recombine.measure.latent.module_recovery import fit_map, scaled_latent
from recombine.measure.predict import forward_episodes
from recombine.model.interface import LatentModel
from recombine.record.codec import plain
from recombine.run.load import load_model
from recombine.task.evaluation import active_modules_episodes, probe_episodes
from recombine.task.teacher import config_teacher


def main() -> None:
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
    main()
