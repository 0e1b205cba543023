"""The scores of the references, as stored in the files of `references/`."""

from typing import Any

from recombine.record.codec import NumModules, Real, Record
from recombine.record.novel import NovelScores
from recombine.record.score import Score

REFERENCE_NAMES = (
    "context_mean",
    "nearest_neighbours",
    "ridge",
    "fitted_network",
    "trained_task",
    "trained_covariance",
    "oracle",
    "known_latent",
)


class ReferenceScores(Record, frozen=True, kw_only=True, omit_defaults=True):
    """The scores of one reference on every split, and on tasks of k active modules."""

    in_dist: Score
    ood: Score | None = None
    control: Score
    control_modules: Score | None = None
    active_modules: dict[NumModules, Score]
    novel: NovelScores | None = None
    noise: Real | None = None
    """The noise that was chosen for the trained covariance. Files without it have 0.01."""

    def split(self, split: str) -> Score | None:
        return getattr(self, split)

    def r2(self, split: str) -> float | None:
        score = self.split(split)
        return None if score is None else score.r2


References = dict[str, ReferenceScores]
"""The scores of every reference, by its name."""


class StoredReferences(Record, frozen=True):
    """The content of a file: the settings that the scores depend on, and the scores."""

    depends: dict[str, Any]
    scores: References
