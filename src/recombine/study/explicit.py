"""The study with explicit inference: each hypertransformer is scored with the latents that explicit inference finds."""

from dataclasses import replace

from msgspec import structs

from recombine.record.novel import NovelScores
from recombine.storage.reader import StoredRun
from recombine.study.collect import Study


def with_explicit_inference(study: Study) -> Study | None:
    """The same runs; a hypertransformer's last scores are those after explicit inference from its own latent.

    A hypertransformer without these scores is left out. None if no run has them.
    """
    runs = []
    for run in study.runs:
        if run.model != "hypertransformer":
            runs.append(run)
        elif (improved := _improved(run)) is not None:
            runs.append(improved)
    return Study(tuple(runs)) if any(run.model == "hypertransformer" for run in runs) else None


def _improved(run: StoredRun) -> StoredRun | None:
    card = run.scorecard
    if card is None or card.explicit_inference is None or run.last is None:
        return None
    found = card.explicit_inference.own
    splits = {"in_dist": found.in_dist, "control": found.control, "control_modules": found.control_modules}
    row = structs.replace(run.last, ood=found.ood, **splits)
    novel = None if found.novel is None else NovelScores(found.novel)
    return replace(run, rows=(*run.rows[:-1], row), scorecard=structs.replace(card, novel=novel))
