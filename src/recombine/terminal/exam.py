"""Prints the scores of predictions that were made elsewhere, and the result of a benchmark."""

from statistics import fmean

from recombine.exam.result import Result
from recombine.exam.score import ExamScores
from recombine.study.summary import FinalScores, ScoreTable
from recombine.support.split import EVAL_SPLITS
from recombine.terminal.output import print_line
from recombine.terminal.scorecard import novel_cells
from recombine.terminal.tables import print_scores, print_table, r2_text


def print_result(path: str, result: Result) -> None:
    """The scores of a benchmark's result: the mean over seeds by task and support, and the score that ranks it."""
    rows = {}
    for task, support in dict.fromkeys((run.task, run.support) for run in result.runs):
        splits = ("in_dist", "ood", "novel", "control")
        rows[f"{task}, {support}"] = [r2_text(fmean(result.values(task, support, split))) for split in splits]
    print_table(f"{path}: {result.model} on {result.benchmark}", ["in_dist", "ood", "novel", "control"], rows)
    scores, seeds = result.score(), len(result.score())
    spread = f" (seeds {', '.join(f'{one:.3f}' for one in scores)})" if seeds > 1 else " (one seed)"
    print_line(f"score {fmean(scores):.3f}{spread}: the mean R² on the novel part over the tasks")
    print_line(f"{result.parameters:,} parameters, {result.core_hours:.2f} core-hours")


def print_exam(path: str, exam: ExamScores) -> None:
    """Tables: R² by split beside the references, other readings of R², masks, the novel part."""
    about, scores = exam.about, exam.scores
    title = f"{path}: {about.task['support']['name']}, seed {about.seed}, episodes {exam.digest[:12]}"
    everyone = {"predictions": scores, **exam.references}
    rows = {
        name: FinalScores(
            {split: one.splits[split].r2 if split in one.splits else None for split in EVAL_SPLITS},
            novel=None if one.novel is None else one.novel.ood.r2,
        )
        for name, one in everyone.items()
    }
    if scores.splits:
        print_scores(ScoreTable(title, {"predictions": rows.pop("predictions")}, rows))
        by_split = {
            split: [r2_text(one.r2), r2_text(one.r2_sequence), r2_text(one.r2_variance), f"{one.mse:.3g}"]
            for split, one in scores.splits.items()
        }
        print_table("by reading", ["R² pooled", "per sequence", "by variance", "squared error"], by_split)
    masks = {
        f"{split} {mask}": [r2_text(one.r2), str(one.episodes)]
        for split, found in scores.splits.items()
        for mask, one in sorted((found.masks or {}).items(), reverse=True)
    }
    if masks:
        print_table("by mask", ["R²", "episodes"], masks)
    if scores.novel is not None:
        cells = {name: novel_cells(one.novel.ood) for name, one in everyone.items() if one.novel is not None}
        share = f"the novel part of held-out tasks, {scores.novel.ood.share:.1%} of their variance"
        print_table(share, ["slope", "R²", "error in the span"], cells)
