"""The masks of panel D that neither of its two supports trains on."""

from collections.abc import Iterable

from recombine import paper
from recombine.record.novel import NovelScore, PooledNovel, pool_novel
from recombine.record.score import SplitScore, pooled_r2

COMPARED = ("connected", "disconnected")
"""The supports of panel D."""


def outside_both(score: SplitScore | None) -> float | None:
    """R² on the masks that neither support of panel D trains on, from the scores of each mask."""
    masks = None if score is None else score.masks
    return pooled_r2(masks, _neither(masks or ()))


def novel_outside_both(score: NovelScore | None) -> PooledNovel | None:
    """The novel part of the same masks' tasks."""
    return None if score is None else pool_novel(score.masks, _neither(score.masks))


def _neither(masks: Iterable[str]) -> list[str]:
    trained = {mask for support in COMPARED for mask in paper.SUPPORTS[support]}
    return [mask for mask in masks if mask not in trained]
