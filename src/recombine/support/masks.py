"""Masks: which modules a task may use.

Paper: Appendix C.1, "Task latent variable distribution".
"""

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import comb
from typing import Any

from recombine.errors import InputError

Mask = tuple[int, ...]

MOST_MASKS = 100_000  # a larger number is a typing error, not an experiment


def parse_mask(field: str, value: Any) -> Mask:
    """A mask from '110000' or from a sequence of zeros and ones."""
    if isinstance(value, str):
        entries: list[Any] = [{"0": 0, "1": 1}.get(character) for character in value]
    elif isinstance(value, Sequence):
        # In Python True == 1 and 1.0 == 1: neither is accepted in a mask.
        entries = [entry if type(entry) is int and entry in (0, 1) else None for entry in value]
    else:
        entries = []
    if not entries or None in entries:
        raise InputError(field, value, "a mask is made of zeros and ones, such as '110000'")
    mask = tuple(entries)
    if not any(mask):
        raise InputError(field, value, "a mask needs at least one active module; this one has none")
    return mask


def format_mask(mask: Mask) -> str:
    return "".join(map(str, mask))


def active_modules(mask: Mask) -> tuple[int, ...]:
    """The active modules of a mask, numbered from 1 as in the paper."""
    return tuple(m for m, active in enumerate(mask, start=1) if active)


def k_hot_masks(num_modules: int, k: int) -> tuple[Mask, ...]:
    """All masks of `num_modules` modules with exactly k active ones, in lexicographic order of the modules."""
    if not 1 <= k <= num_modules:
        raise InputError("k", k, f"a mask of {num_modules} modules has between 1 and {num_modules} active ones")
    if comb(num_modules, k) > MOST_MASKS:
        raise InputError(
            "k", k, f"{num_modules} modules have {comb(num_modules, k):,} such masks; at most {MOST_MASKS:,}"
        )
    return tuple(tuple(int(m in active) for m in range(num_modules)) for active in combinations(range(num_modules), k))


def components(masks: Iterable[Mask]) -> tuple[tuple[int, ...], ...]:
    """The groups of modules (numbered from 1) that the masks connect, directly or through other masks.

    A single group means that the support is connected: no subset of the modules appears only in isolation of the rest.
    Paper: Appendix C.1, "Connected and disconnected task support" (app:connectedness).
    """
    groups: list[set[int]] = []
    for mask in masks:
        merged = set(active_modules(mask))
        apart = []
        for group in groups:
            if group & merged:
                merged |= group
            else:
                apart.append(group)
        groups = [*apart, merged]
    return tuple(sorted(tuple(sorted(group)) for group in groups))
