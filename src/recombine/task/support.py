"""Supports: the set of masks a model trains on, and the masks held out from it.

Paper: Table 1 (tab:task_distribution); Appendix C.2, "OOD R²".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

from recombine import paper
from recombine.errors import InputError
from recombine.task.mask import MOST_MASKS, Mask, components, format_mask, k_hot_masks, parse_mask


@dataclass(frozen=True)
class Support:
    """The masks to train on and those held out, checked on construction.

    Where `held_out` is not given, it is every mask outside the support with as many active modules as some mask
    inside it: for the paper's supports, the unseen 2-hot masks.
    """

    name: str
    masks: tuple[Mask, ...]
    held_out: tuple[Mask, ...] | None = None

    def __post_init__(self) -> None:
        if not self.masks:
            raise InputError("support.masks", [], "a support needs at least one mask")
        masks = _checked("support.masks", self.masks, length=len(self.masks[0]))
        for module in range(1, len(masks[0]) + 1):
            if not any(mask[module - 1] for mask in masks):
                shown = [format_mask(mask) for mask in masks]
                raise InputError(
                    "support.masks", shown, f"no mask covers module {module}; each module needs one"
                )
        object.__setattr__(self, "masks", masks)
        held_out = _complement(masks) if self.held_out is None else self.held_out
        held_out = _checked("support.held_out", held_out, length=len(masks[0]))
        for mask in held_out:
            if mask in masks:
                raise InputError(
                    "support.held_out", format_mask(mask), "this mask is trained on, so it cannot be held out"
                )
        object.__setattr__(self, "held_out", held_out)

    @property
    def num_modules(self) -> int:
        return len(self.masks[0])

    @property
    def components(self) -> tuple[tuple[int, ...], ...]:
        """The groups of modules, numbered from 1, that the trained masks tie together."""
        return components(self.masks)

    @property
    def connected(self) -> bool:
        return len(self.components) == 1

    def masks_of(self, split: str) -> tuple[Mask, ...]:
        """The masks a split draws its tasks from: the held-out ones for `ood`, the trained ones otherwise."""
        if split != "ood":
            return self.masks
        if not self.held_out:
            raise InputError(
                "support", self.name, "it trains on every mask; none is held out, so there is no ood"
            )
        return self.held_out

    def as_dict(self) -> dict[str, Any]:
        """What `recombine task show --json` prints; `parse_support` reads it back."""
        return {
            "name": self.name,
            "masks": [list(mask) for mask in self.masks],
            "held_out": [list(mask) for mask in self.held_out or ()],
            "connected": self.connected,
            "components": [list(component) for component in self.components],
        }


def paper_support(name: str) -> Support:
    """One of Table 1's supports, by name."""
    return Support(name, tuple(parse_mask("support", mask) for mask in paper.SUPPORTS[name]))


def _checked(field: str, masks: Sequence[Any], length: int) -> tuple[Mask, ...]:
    """The masks, each well-formed and of the right length, none of them twice."""
    checked: list[Mask] = []
    for i, value in enumerate(masks):
        mask = parse_mask(f"{field}[{i}]", value)
        if len(mask) != length:
            raise InputError(
                f"{field}[{i}]",
                format_mask(mask),
                f"has {len(mask)} modules where the first mask has {length}",
            )
        checked.append(mask)
    seen: set[Mask] = set()
    for i, mask in enumerate(checked):
        if mask in seen:
            raise InputError(
                f"{field}[{i}]", format_mask(mask), "this mask is there twice; name each mask once"
            )
        seen.add(mask)
    return tuple(checked)


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
