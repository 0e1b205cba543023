"""Supports: the set of masks a model trains on, and the masks held out from it.

Paper: Table 1 (tab:task_distribution); Appendix C.2, "OOD R²".
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import Any

from recombine import paper
from recombine.errors import InputError
from recombine.support.masks import MOST_MASKS, Mask, components, format_mask, k_hot_masks, parse_mask


@dataclass(frozen=True)
class Support:
    """The masks to train on and those held out, checked on construction. `make_support` derives the held-out ones."""

    name: str
    masks: tuple[Mask, ...]
    held_out: tuple[Mask, ...]

    def __post_init__(self) -> None:
        for name in ("masks", "held_out"):
            object.__setattr__(self, name, tuple(map(tuple, getattr(self, name))))
        if not self.masks:
            raise InputError("support.masks", [], "a support needs at least one mask")
        _check_masks("support.masks", self.masks, self.num_modules)
        _check_masks("support.held_out", self.held_out, self.num_modules)
        for module in range(1, self.num_modules + 1):
            if not any(mask[module - 1] for mask in self.masks):
                shown = [format_mask(mask) for mask in self.masks]
                raise InputError("support.masks", shown, f"no mask covers module {module}; each module needs one")
        trained = set(self.masks)
        for mask in self.held_out:
            if mask in trained:
                raise InputError(
                    "support.held_out", format_mask(mask), "this mask is trained on, so it cannot be held out"
                )

    @property
    def num_modules(self) -> int:
        return len(self.masks[0])

    @property
    def components(self) -> tuple[tuple[int, ...], ...]:
        """The groups of modules, numbered from 1, that the trained masks connect."""
        return components(self.masks)

    @property
    def connected(self) -> bool:
        return len(self.components) == 1

    def __repr__(self) -> str:
        counts = f"{len(self.masks)} masks of {self.num_modules} modules, {len(self.held_out)} held out"
        return f"Support({self.name}: {counts})"

    def masks_of(self, split: str) -> tuple[Mask, ...]:
        """The masks a split draws its tasks from: the held-out ones for `ood`, the trained ones otherwise."""
        if split != "ood":
            return self.masks
        if not self.held_out:
            raise InputError("support", self.name, "no mask is held out, so there is no ood split")
        return self.held_out

    def as_dict(self) -> dict[str, Any]:
        """The support as `recombine task show --json` prints it; `parse_support` reads it back."""
        return {
            "name": self.name,
            "masks": [list(mask) for mask in self.masks],
            "held_out": [list(mask) for mask in self.held_out],
            "connected": self.connected,
            "components": [list(component) for component in self.components],
        }


def make_support(name: str, masks: Sequence[Any], held_out: Sequence[Any] | None = None) -> Support:
    """A support from masks as a user writes them ('110' or [1, 1, 0]).

    The default of `held_out` is every mask outside the support that has as many active modules as some mask inside
    it: for the paper's supports, the unseen 2-hot masks.
    """
    trained = tuple(parse_mask(f"support.masks[{i}]", mask) for i, mask in enumerate(masks))
    if name in paper.SUPPORTS and {format_mask(mask) for mask in trained} != set(paper.SUPPORTS[name]):
        raise InputError("support.name", name, "a support of the paper has this name and other masks; use another name")
    if held_out is not None:
        return Support(name, trained, tuple(parse_mask(f"support.held_out[{i}]", m) for i, m in enumerate(held_out)))
    support = Support(name, trained, ())  # checks the masks before the held-out ones are derived
    return replace(support, held_out=_complement(trained))


def paper_support(name: str) -> Support:
    """One of Table 1's supports, by name."""
    return make_support(name, paper.SUPPORTS[name])


def _check_masks(field: str, masks: tuple[Mask, ...], length: int) -> None:
    """Refuse masks that are malformed, of the wrong length, or repeated."""
    seen: set[Mask] = set()
    for i, mask in enumerate(masks):
        parse_mask(f"{field}[{i}]", mask)
        if len(mask) != length:
            raise InputError(
                f"{field}[{i}]", format_mask(mask), f"has {len(mask)} modules where the first mask has {length}"
            )
        if mask in seen:
            raise InputError(f"{field}[{i}]", format_mask(mask), "this mask is repeated; name each mask once")
        seen.add(mask)


def _complement(masks: tuple[Mask, ...]) -> tuple[Mask, ...]:
    num_modules, trained = len(masks[0]), set(masks)
    sizes = sorted({sum(mask) for mask in masks})
    total = sum(comb(num_modules, k) for k in sizes)
    if total > MOST_MASKS:
        raise InputError(
            "support.masks",
            f"{len(masks)} masks of {num_modules} modules",
            f"{total:,} masks would be held out, at most {MOST_MASKS:,}: name the held-out masks yourself",
        )
    return tuple(mask for k in sizes for mask in k_hot_masks(num_modules, k) if mask not in trained)
