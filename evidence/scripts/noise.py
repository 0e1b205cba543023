"""Measures what the noise of `trained_covariance` changes: `python evidence/scripts/noise.py [chosen | each]`.

`chosen` takes ten minutes and writes "noise" into measured.json: for seeds of `quick` and seed 0 of `paper`, the noise
that is chosen, and R² with it and with 1 %, on the first 1,600 episodes of a split. `each` takes half an hour, writes
"covariance": R² in distribution and on held-out masks for each noise, for the teachers of `quick` and of `paper`.
"""

import sys

import jax
from records import MAIN, T, chosen, read_rows, study, write_rows

from recombine import paper
from recombine.config.preset import Preset, preset_config
from recombine.config.toml import override
from recombine.measure.r2 import score
from recombine.measure.reference.baselines import predict_reference
from recombine.measure.reference.choose_noise import choose_noise
from recombine.measure.reference.trained_tasks import TrainedCovariance, draw_tasks
from recombine.storage.reader import StoredRun
from recombine.study.wording import fixed
from recombine.task.evaluation import evaluation_episodes
from recombine.task.teacher import config_teacher
from recombine.terminal.markdown import table

BEFORE = 0.01
EPISODES = 1_600
NOISES = (1e-6, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
SEEDS: dict[Preset, tuple[int, ...]] = {"quick": (0, 1, 2), "paper": (0,)}


def measure_chosen() -> None:
    found = []
    for preset, seeds in SEEDS.items():
        for support, seed in ((support, seed) for support in paper.SUPPORTS for seed in seeds):
            config = override(preset_config(preset, "transformer"), {"seed": seed, "task": {"support": support}})
            teacher, task = config_teacher(config), config.task
            tasks = draw_tasks(seed, teacher, task.support)
            noise = choose_noise(seed, teacher, task.support, task.episode_length, tasks)
            row = {"study": preset, "support": support, "seed": seed, "noise": noise}
            for split in ("in_dist", "ood"):
                _, episodes = evaluation_episodes(config, teacher, split)
                some = jax.tree.map(lambda array: array[:EPISODES], episodes)
                for name, value in ((f"{split}_before", BEFORE), (split, noise)):
                    predicted = predict_reference(
                        TrainedCovariance(tasks.W, tasks.teacher, value), teacher, some, split
                    )
                    row[name] = score(predicted, some).r2
            found.append(row)
    write_rows("noise", found)


def main_runs(name: str) -> list[StoredRun]:
    """One run for each seed of a study: the task does not depend on the model."""
    return chosen(study(name).runs, T, task__support__name=MAIN)


def measure_each() -> None:
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


def noise_table() -> str:
    """A row for each teacher and support."""
    rows = [
        (
            f"`{row['study']}`",
            f"`{row['support']}`",
            str(row["seed"]),
            f"{100 * row['noise']:g} %",
            *(fixed(row[name]) for name in ("in_dist_before", "in_dist", "ood_before", "ood")),
        )
        for row in read_rows("noise")
    ]
    head = ("", "trained on", "seed", "noise chosen", "in distribution, with 1 %", "in distribution, chosen")
    return table((*head, "held out, with 1 %", "held out, chosen"), rows, left=2)


if __name__ == "__main__":
    {"chosen": measure_chosen, "each": measure_each}[sys.argv[1] if len(sys.argv) > 1 else "chosen"]()
