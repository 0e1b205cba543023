"""Scores ridge and the oracle mask by mask, like the models of a run: `python evidence/scripts/reference_masks.py`.

Writes measured/reference_masks.json: the scores on each held-out mask, for the runs of panel D at `quick`.
"""

from records import T, chosen, study
from results import write_rows

from recombine.measure.r2 import score_by_mask
from recombine.measure.reference.baselines import make_references, predict_reference
from recombine.record.codec import plain
from recombine.study.panel_d_masks import COMPARED
from recombine.task.evaluation import evaluation_episodes
from recombine.task.teacher import config_teacher


def main() -> None:
    found = []
    for run in [run for run in chosen(study("quick").runs, T) if run.support in COMPARED]:
        config = run.config
        support = config.task.support
        teacher = config_teacher(config)
        references = make_references(config.seed, teacher, support)
        teachers, episodes = evaluation_episodes(config, teacher, "ood")
        for name in ("ridge", "oracle"):
            predicted = predict_reference(references[name], teachers, episodes, "ood")
            masks = score_by_mask(predicted, episodes, support.held_out)
            row = {"support": support.name, "seed": config.seed, "reference": name}
            found.append(row | {"masks": {mask: plain(entry) for mask, entry in masks.items()}})
    write_rows("reference_masks", found)


if __name__ == "__main__":
    main()
