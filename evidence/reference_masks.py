"""Ridge and the oracle mask by mask, as the runs have their models: `python evidence/reference_masks.py`.

Writes reference_masks.json: the scores on each held-out mask, for the runs of panel D at `quick`.
"""

from measured import write_rows
from records import HERE

from recombine.measure.r2 import score_by_mask
from recombine.measure.reference.baselines import make_references, predict_reference
from recombine.measure.snapshot import evaluation_episodes, finite
from recombine.run.directory import run_config
from recombine.task.teacher import config_teacher


def main() -> None:
    found = []
    for path in sorted(HERE.glob("quick/transformer-*connected-seed*")):
        config = run_config(path)
        support = config.task.support
        teacher = config_teacher(config)
        references = make_references(config.seed, teacher, support)
        teachers, episodes = evaluation_episodes(config, teacher, "ood")
        for name in ("ridge", "oracle"):
            predicted = predict_reference(references[name], teachers, episodes, "ood")
            masks = score_by_mask(predicted, episodes, support.held_out)
            row = {"support": support.name, "seed": config.seed, "reference": name}
            found.append(row | {"masks": {mask: finite(entry._asdict()) for mask, entry in masks.items()}})
    write_rows(HERE / "reference_masks.json", found)


if __name__ == "__main__":
    main()
