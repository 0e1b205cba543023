"""How the reference `trained_covariance` depends on its noise: `python evidence/covariance.py`, half an hour.

Writes covariance.json: R² in distribution and on held-out masks, for the teachers of `quick` and of `paper`.
"""

from measured import write_rows
from records import HERE

from recombine.measure.r2 import score
from recombine.measure.reference.baselines import predict_reference
from recombine.measure.reference.trained_tasks import TrainedCovariance, draw_tasks
from recombine.measure.snapshot import evaluation_episodes
from recombine.run.directory import run_config
from recombine.task.teacher import config_teacher

NOISES = (1e-6, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)


def main() -> None:
    found = []
    for path in sorted(
        [*HERE.glob("quick/transformer-connected+-seed*"), *HERE.glob("paper/transformer-connected+-seed*")]
    ):
        config = run_config(path)
        teacher = config_teacher(config)
        tasks = draw_tasks(config.seed, teacher, config.task.support)
        for noise in NOISES:
            row = {"study": path.parent.name, "seed": config.seed, "noise": noise}
            for split in ("in_dist", "ood"):
                _, episodes = evaluation_episodes(config, teacher, split)
                reference = TrainedCovariance(tasks.W, tasks.a, noise)
                row[split] = score(predict_reference(reference, teacher, episodes, split), episodes).r2
            found.append(row)
    write_rows(HERE / "covariance.json", found)


if __name__ == "__main__":
    main()
