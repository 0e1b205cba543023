"""The study with explicit inference in place of the hypertransformer's own: at test time alone, or trained with it."""

from dataclasses import replace

from msgspec import structs

from recombine.config.model import EXPLICIT
from recombine.config.toml import override
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


def trained_with_explicit_inference(study: Study) -> Study | None:
    """The same runs; those that were trained with explicit inference take the place of the hypertransformer's.

    Of several numbers of steps, the largest counts. None if no run was trained with explicit inference.
    """
    steps = max((_steps(run) for run in study.runs), default=0)
    kept = [run for run in study.runs if run.model != "hypertransformer" and _steps(run) in (0, steps)]
    return Study(tuple(map(_as_hypertransformer, kept))) if steps else None


def _steps(run: StoredRun) -> int:
    """The steps of explicit inference that a run was trained with; 0 if it is no hypertransformer with them."""
    return getattr(run.config.model, "inference_steps", 0) if run.model.startswith(EXPLICIT) else 0


def _as_hypertransformer(run: StoredRun) -> StoredRun:
    if not _steps(run):
        return run
    return replace(run, config=override(run.config, {"model": {"inference_steps": 0}}))


def _improved(run: StoredRun) -> StoredRun | None:
    card = run.scorecard
    if card is None or card.explicit_inference is None or run.last is None:
        return None
    found = card.explicit_inference.own
    splits = {"in_dist": found.in_dist, "control": found.control, "control_modules": found.control_modules}
    row = structs.replace(run.last, ood=found.ood, **splits)
    novel = None if found.novel is None else NovelScores(found.novel)
    return replace(run, rows=(*run.rows[:-1], row), scorecard=structs.replace(card, novel=novel))
