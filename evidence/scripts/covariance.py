"""Measures how the reference `trained_covariance` depends on its noise: `python evidence/scripts/covariance.py`.

Writes measured/covariance.json: R² in distribution and on held-out masks, for the teachers of `quick` and of `paper`.
Takes half an hour.
"""

from records import MAIN, T, chosen, study
from results import write_rows

from recombine.measure.r2 import score
from recombine.measure.reference.baselines import predict_reference
from recombine.measure.reference.trained_tasks import TrainedCovariance, draw_tasks
from recombine.storage.reader import StoredRun
from recombine.task.evaluation import evaluation_episodes
from recombine.task.teacher import config_teacher

NOISES = (1e-6, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)


def main_runs(name: str) -> list[StoredRun]:
    """One run for each seed of a study: the task does not depend on the model."""
    return chosen(study(name).runs, T, task__support__name=MAIN)


def main() -> None:
    found = []
    for study_name, config in [(name, run.config) for name in ("paper", "quick") for run in main_runs(name)]:
        teacher = config_teacher(config)
        tasks = draw_tasks(config.seed, teacher, config.task.support)
        for noise in NOISES:
            row = {
                "study": study_name,
                "seed": config.seed,
                "noise": noise,
            }
            for split in ("in_dist", "ood"):
                _, episodes = evaluation_episodes(config, teacher, split)
                reference = TrainedCovariance(tasks.W, tasks.teacher, noise)
                row[split] = score(predict_reference(reference, teacher, episodes, split), episodes).r2
            found.append(row)
    write_rows("covariance", found)


if __name__ == "__main__":
    main()
