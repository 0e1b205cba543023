"""Rows of metrics and scores with known numbers, in the format of a run."""

from recombine.record.codec import encode
from recombine.record.score import MetricsRow, ProbeScores, Score, SplitScore
from recombine.record.sweep import Selection, SelectionScores
from recombine.storage.reader import SELECTION_FORMAT


def score(r2: float) -> Score:
    return Score(r2=r2, nmse=1 - r2, r2_variance=r2, mse=1 - r2)


def split_score(r2: float) -> SplitScore:
    return SplitScore(r2=r2, nmse=1 - r2, r2_variance=r2, mse=1 - r2)


def row(step: int, ood: float = 0.5) -> str:
    """A line of `metrics.jsonl`."""
    found = MetricsRow(
        step=step,
        loss=1.0 / (step + 1),
        in_dist=split_score(0.25),
        ood=split_score(ood),
        control=split_score(0.0),
        control_modules=split_score(0.0),
        probe=ProbeScores(in_dist=(0.1, 0.2), ood=(0.1, 0.15), latent=None),
    )
    return f"{encode(found)}\n"


def selection(step: int, select: float, report: float) -> str:
    """The `selection.json` of a run, with R² on held-out masks for selection and for reporting."""
    chosen, reported = (SelectionScores(in_dist=score(1.0), ood=score(r2)) for r2 in (select, report))
    return encode(Selection(SELECTION_FORMAT, step, chosen, reported))
