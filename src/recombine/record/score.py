"""Scores measured at a snapshot, and the row of `metrics.jsonl` that holds them."""

from recombine.record.codec import Count, MaskName, Positive, Real, Record
from recombine.record.novel import NovelScores
from recombine.support.split import EVAL_SPLITS, Split

SCORECARD_FORMAT = 3  # of scorecard.json


class Score(Record, frozen=True, omit_defaults=True):
    """How well a set of predictions fits."""

    r2: Real
    """1 − Σ (y − ŷ)² / Σ (y − ȳ_context)²: 0 for the context's mean, 1 for the truth."""
    nmse: Positive
    """The ratio itself, 1 − r2, as the paper prints it."""
    r2_variance: Real | None
    """The other reading of the paper: the denominator is the variance of y in each context, summed over episodes. None
    if the contexts have a single pair, and so no variance."""
    mse: Positive
    """The mean squared error, which is the training loss."""
    r2_sequence: Real | None = None
    """The mean over episodes of 1 − (y − ŷ)² / (the variance of the episode's N labels): as code of the paper's
    authors averages it elsewhere. None in rows that were measured before it was."""


class MaskScore(Record, frozen=True):
    """The score on the tasks of one mask. `pooled_r2` combines several masks, weighted by their episodes."""

    episodes: Count
    r2: Real | None
    mse: Positive
    spread: Positive
    """The mean of (y − ȳ_context)²: r2 = 1 − mse / spread."""


class SplitScore(Score, frozen=True, omit_defaults=True):
    """The score on a split, and on each of its masks. The control splits have no masks."""

    masks: dict[MaskName, MaskScore] | None = None


class LatentProbe(Record, frozen=True, omit_defaults=True):
    """R² of the teacher's latent, decoded linearly from the latent that the model inferred."""

    in_dist: Real | None
    ood: Real | None = None


class PointScores(Record, frozen=True, omit_defaults=True):
    """R² of the teacher's latent, decoded linearly from each point of the residual stream: after the embedding, after
    each block."""

    in_dist: tuple[Real | None, ...]
    ood: tuple[Real | None, ...] | None = None

    def __post_init__(self) -> None:
        if self.ood is not None and len(self.ood) != len(self.in_dist):
            raise ValueError(f"{len(self.in_dist)} points in distribution and {len(self.ood)} out of it")

    def split(self, split: str) -> tuple[float | None, ...] | None:
        return getattr(self, split)


class ProbeScores(PointScores, frozen=True, kw_only=True, omit_defaults=True):
    """The probe of the read-out token, and of the latent for a model that infers one."""

    latent: LatentProbe | None


class MetricsRow(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One row of `metrics.jsonl`: a snapshot. There is no `ood` if the support holds no mask out."""

    step: Count
    loss: Positive | None
    """The mean training loss since the previous row; None in the first row."""
    in_dist: SplitScore
    ood: SplitScore | None = None
    control: SplitScore
    control_modules: SplitScore | None = None
    """None for a task class that has no readout to keep."""
    probe: ProbeScores | None
    """None for a model that shows neither a residual stream nor a latent."""
    novel: NovelScores | None = None
    """None where no mask is held out, and in rows that were measured before it was."""

    def split(self, split: str) -> SplitScore | None:
        return getattr(self, split)

    def splits(self) -> dict[Split, SplitScore]:
        """The score of every split that was measured."""
        return {split: score for split in EVAL_SPLITS if (score := self.split(split)) is not None}

    def r2(self, split: str) -> float | None:
        score = self.split(split)
        return None if score is None else score.r2


def pooled_r2(masks: dict[str, MaskScore] | None, chosen: list[str]) -> float | None:
    """R² over the episodes of the chosen masks together: 1 − Σ n·mse / Σ n·spread."""
    scores = [masks[mask] for mask in chosen if mask in masks] if masks else []
    spread = sum(score.episodes * score.spread for score in scores)
    return 1 - sum(score.episodes * score.mse for score in scores) / spread if spread else None
