"""Randomness as a pure function of (seed, stream, step).

Every use of random numbers has a stream of its own, and no two uses share one. Nothing about the data needs saving
to resume a run: the step's number says it all.
"""

from enum import IntEnum

import jax
from jaxtyping import Array, Int, Key

from recombine.checks import check_seed


class Stream(IntEnum):
    """The named streams. The numbers are part of every run's identity: append, never renumber."""

    teacher = 0
    init = 1
    train = 2
    in_dist = 3
    ood = 4
    control = 5
    probe = 6  # fitting the probe
    select = 7  # selecting among configurations, never reporting on them
    reference = 8  # where the reference that is fitted by gradient descent starts
    control_modules = 9
    active_modules = 10  # tasks of k active modules; the step is k
    modules = 11  # inputs on which a student's modules are compared with the teacher's
    intervene = 12  # random subspaces
    explore = 13  # tasks that somebody composes; step 1 draws a fresh teacher
    trained_tasks = 14  # the tasks that references know as those of training
    novel = 15  # the novel part: step 0 the inputs, step 1 the contexts


def stream_key(seed: int | Int[Array, ""], stream: Stream, step: int | Int[Array, ""] = 0) -> Key[Array, ""]:
    """The key of one step of one stream."""
    if not isinstance(seed, jax.Array):  # a traced seed was checked before it was traced
        check_seed("seed", seed)
    key = jax.random.key(seed, impl="threefry2x32")
    return jax.random.fold_in(jax.random.fold_in(key, stream), step)
