"""Randomness as a pure function of (seed, stream, step).

Every use of random numbers has its own stream. To resume a run, no random state needs to be saved: the number of the
step determines the data.
"""

from enum import IntEnum

import jax
from jaxtyping import Array, Int, Key

from recombine.checks import check_seed


class Stream(IntEnum):
    """The named streams. Every stored run depends on these numbers: add new ones at the end, never renumber."""

    teacher = 0
    init = 1
    train = 2
    in_dist = 3
    ood = 4
    control = 5
    probe = 6  # episodes on which the probe is fitted
    select = 7  # episodes by which a sweep selects configurations; no reported score uses them
    reference = 8  # initial weights of the reference `fitted_network`
    control_modules = 9
    active_modules = 10  # tasks of k active modules; the step is k
    modules = 11  # inputs on which a model's modules are compared with the teacher's
    intervene = 12  # random subspaces, the control of the interventions
    explore = 13  # tasks that a user composes in the explorer; step 1 draws a fresh teacher
    trained_tasks = 14  # the training tasks that two references are given; step 1: contexts that choose the noise
    novel = 15  # the novel part: step 0 the inputs, step 1 the contexts
    dropout = 16  # the random numbers of a model while it is trained
    dream = 17  # dreamed training episodes: the second task of each, how the two are mixed, and the noise


def stream_key(seed: int | Int[Array, ""], stream: Stream, step: int | Int[Array, ""] = 0) -> Key[Array, ""]:
    """The key of one step of one stream."""
    if not isinstance(seed, jax.Array):  # a traced seed was checked before it was traced
        check_seed("seed", seed)
    key = jax.random.key(seed, impl="threefry2x32")
    return jax.random.fold_in(jax.random.fold_in(key, stream), step)
