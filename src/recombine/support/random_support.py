"""Random supports of a given size and connectivity."""

from math import ceil, comb
from random import Random

from recombine.errors import InputError
from recombine.support.masks import Mask, components, k_hot_masks
from recombine.support.support import Support, make_support

REJECTION_TRIES = 1_000
MOST_WORK = 1_000_000


def sample_support(num_modules: int, k: int, size: int, connected: bool, seed: int) -> Support:
    """A random support of `size` k-hot masks that covers every module and is connected, or is not.

    It is drawn by rejection, uniformly over all such supports. If they are so rare that this fails, the support is
    grown to have the properties: random, but not uniform.
    """
    pool = k_hot_masks(num_modules, k)
    _check_feasible(num_modules, k, size, connected, len(pool))
    random = Random(seed)
    for _ in range(min(REJECTION_TRIES, MOST_WORK // (size * num_modules))):
        if _is_valid(masks := random.sample(pool, size), num_modules, connected):
            break
    else:
        grow = _grow_connected if connected else _grow_disconnected
        masks = grow(random, num_modules, k, size)
    word = "connected" if connected else "disconnected"
    return make_support(f"{word}-{num_modules}-{k}-{size}-{seed}", sorted(masks, reverse=True))


def _is_valid(masks: list[Mask], num_modules: int, connected: bool) -> bool:
    groups = components(masks)
    return sum(map(len, groups)) == num_modules and (len(groups) == 1) == connected


def _check_feasible(num_modules: int, k: int, size: int, connected: bool, num_masks: int) -> None:
    if connected:
        if k == 1 and num_modules > 1:
            raise InputError("k", k, "1-hot masks never connect two modules; a connected support needs k ≥ 2")
        # A mask that overlaps the connected group adds at most k − 1 new modules to it.
        fewest, most = 1 + ceil((num_modules - k) / (k - 1)) if k > 1 else 1, num_masks
    else:
        if num_modules < 2 * k:
            raise InputError(
                "modules",
                num_modules,
                f"two separate groups of {k}-hot masks need at least {2 * k} modules",
            )
        fewest = ceil(num_modules / k)
        # Two groups hold the most masks when one has only k modules. 1-hot masks are always disconnected.
        most = num_masks if k == 1 else comb(num_modules - k, k) + 1
    if not fewest <= size <= most:
        kind = "connected" if connected else "disconnected"
        raise InputError(
            "size",
            size,
            f"a {kind} support of {k}-hot masks of {num_modules} modules has {fewest} to {most} masks",
        )


def _grow_connected(random: Random, num_modules: int, k: int, size: int) -> list[Mask]:
    order = random.sample(range(num_modules), num_modules)
    groups = [order[:k]]
    for start in range(k, num_modules, max(k - 1, 1)):
        fresh = order[start : start + k - 1]
        groups.append(fresh + random.sample(order[:start], k - len(fresh)))
    return _fill(random, num_modules, k, size, groups, [order])


def _grow_disconnected(random: Random, num_modules: int, k: int, size: int) -> list[Mask]:
    def room(first: int) -> bool:
        parts = (first, num_modules - first)
        return sum(ceil(n / k) for n in parts) <= size <= sum(comb(n, k) for n in parts)

    order = random.sample(range(num_modules), num_modules)
    cut = random.choice([first for first in range(k, num_modules - k + 1) if room(first)])
    parts = [order[:cut], order[cut:]]
    groups = []
    for part in parts:
        for start in range(0, len(part), k):
            fresh = part[start : start + k]
            groups.append(fresh + random.sample([m for m in part if m not in fresh], k - len(fresh)))
    return _fill(random, num_modules, k, size, groups, parts)


def _fill(random: Random, num_modules: int, k: int, size: int, groups: list[list[int]], parts: list[list[int]]):
    """The grown masks, filled up to `size` with masks that lie within one of the parts."""
    masks = {tuple(int(m in group) for m in range(num_modules)) for group in groups}
    inside = [
        mask
        for mask in k_hot_masks(num_modules, k)
        if mask not in masks and any({m for m in range(num_modules) if mask[m]} <= set(part) for part in parts)
    ]
    return [*masks, *random.sample(inside, size - len(masks))]
