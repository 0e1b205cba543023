"""Prints the examination of a run in the terminal."""

from collections.abc import Mapping

from recombine.measure.latent.explicit_inference import ExplicitInference
from recombine.measure.latent.interventions import LatentInterventions, SubspaceInterventions
from recombine.measure.latent.module_recovery import Recovery
from recombine.record.codec import plain
from recombine.record.novel import NovelScore, NovelScores
from recombine.record.reference import References
from recombine.record.score import ProbeScores
from recombine.run.examine import Examined
from recombine.study.summary import ScoreTable, references_of_run, row_scores
from recombine.support.split import EVAL_SPLITS, TEACHER_SPLITS
from recombine.terminal.tables import print_scores, print_table, r2_text

SHOWN_REFERENCES = ("ridge", "oracle")
NOVEL_REFERENCES = ("trained_task", "trained_covariance", "oracle")


def print_examined(path: str, examined: Examined) -> None:
    """Tables: splits beside the references, masks, the novel part, probe, active modules, modules, interventions."""
    run, row, card = examined.run, examined.row, examined.scorecard
    title = f"{path}: {run.model} on {run.support}, seed {run.seed}, step {row.step:,} of {run.num_steps:,}"
    print_scores(ScoreTable(title, {run.model: row_scores(row)}, references_of_run(examined.references)))
    masks = {
        f"{split} {mask}": [r2_text(score.r2), str(score.episodes)]
        for split in TEACHER_SPLITS
        if (scores := row.split(split)) is not None
        for mask, score in sorted((scores.masks or {}).items(), reverse=True)
    }
    print_table("by mask", ["R²", "episodes"], masks)
    if card.novel is not None:
        _print_novel(card.novel, examined.references)
    if row.probe is not None:
        _print_probe(row.probe)
    references = [examined.references[name].active_modules for name in SHOWN_REFERENCES]
    by_count = {
        k: [r2_text(score.r2), *(r2_text(scores[k].r2 if k in scores else None) for scores in references)]
        for k, score in card.active_modules.items()
    }
    print_table("by active modules", [run.model, *SHOWN_REFERENCES], by_count)
    if card.modules is not None:
        _print_modules(card.modules)
    match card.interventions:
        case LatentInterventions() as found:
            _print_conditions("latent replaced", {"": found})
        case SubspaceInterventions() as found:
            _print_conditions("the probe's subspace replaced", {f"block {at.point}: ": at for at in found.points})
    if card.explicit_inference is not None:
        _print_explicit_inference(card.explicit_inference)


def _print_explicit_inference(found: ExplicitInference) -> None:
    """R² after each step on held-out masks, and after the last step everywhere, from both starts."""
    starts = {"the model's latent": found.own, "zero": found.zero}
    starts = {name: scores for name, scores in starts.items() if scores is not None}
    shown = [1, 2, 3, 5, 10, 20, 30, 50, 100]
    columns = [0, *(step for step in shown if step < found.steps), found.steps]
    split = "held-out masks" if found.own.ood is not None else "in distribution"
    rows = {f"from {name}": [r2_text(scores.by_step[step]) for step in columns] for name, scores in starts.items()}
    print_table(f"explicit inference: R² on {split} after steps", [str(step) for step in columns], rows)
    splits = [split for split in EVAL_SPLITS if getattr(found.own, split) is not None]
    rows = {
        f"from {name}": [
            *(r2_text(getattr(scores, split).r2) for split in splits),
            r2_text(None if scores.novel is None else scores.novel.r2),
        ]
        for name, scores in starts.items()
    }
    print_table(f"explicit inference: R² after {found.steps} steps", [*splits, "novel"], rows)


def _print_novel(novel: NovelScores, references: References) -> None:
    """The model, a finer span, and references, a row each."""
    rows = {"model": novel.ood, "finer span": novel.finer}
    rows |= {name: found.ood for name in NOVEL_REFERENCES if (found := references[name].novel) is not None}
    cells = {name: novel_cells(score) for name, score in rows.items() if score is not None}
    title = f"the novel part of held-out tasks, {novel.ood.share:.1%} of their variance"
    print_table(title, ["slope", "R²", "error in the span"], cells)


def novel_cells(score: NovelScore) -> list[str]:
    return [
        f"{score.slope:.3f} ± {score.slope_error:.3f}",
        f"{score.r2:.3f} ± {score.r2_error:.3f}",
        r2_text(score.span_error),
    ]


def _print_probe(probe: ProbeScores) -> None:
    splits = [split for split in TEACHER_SPLITS if probe.split(split) is not None]
    points = ["embedding", *(f"block {i}" for i in range(1, len(probe.in_dist)))][: len(probe.in_dist)]
    columns = [probe.split(split) or () for split in splits]
    rows = {name: [r2_text(column[i]) for column in columns] for i, name in enumerate(points)}
    if probe.latent is not None:
        rows["latent"] = [r2_text(getattr(probe.latent, split)) for split in splits]
    print_table("the latent, linearly decoded", splits, rows)


def _print_modules(modules: Recovery) -> None:
    rows = {
        entry.mask: [r2_text(entry.r2), r2_text(entry.ceiling), "trained" if entry.trained else ""]
        for entry in (*modules.single, *modules.pairs)
    }
    print_table(f"modules recovered (map R² {r2_text(modules.map_r2)})", ["explained", "ceiling", ""], rows)


def _print_conditions(title: str, found: Mapping[str, object]) -> None:
    """Print a row for each condition at each point, and a column for each split."""
    first = next(iter(found.values()), None)
    if first is None:
        return
    splits = [split for split in TEACHER_SPLITS if getattr(first, split) is not None]
    rows = {}
    for prefix, at in found.items():
        columns = [plain(getattr(at, split)) for split in splits]
        rows |= {f"{prefix}{name}": [r2_text(column[name]) for column in columns] for name in columns[0]}
    print_table(title, splits, rows)
