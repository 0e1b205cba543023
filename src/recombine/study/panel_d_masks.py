"""The masks of panel D that neither of its two supports trains on."""

from recombine import paper
from recombine.record.score import SplitScore, pooled_r2

COMPARED = ("connected", "disconnected")
"""The supports of panel D."""


def outside_both(score: SplitScore | None) -> float | None:
    """R² on the masks that neither support of panel D trains on, from the scores of each mask."""
    trained = {mask for support in COMPARED for mask in paper.SUPPORTS[support]}
    masks = None if score is None else score.masks
    return pooled_r2(masks, [mask for mask in masks or () if mask not in trained])
