"""T5's relative position bias: a learned number for each distance between two tokens.

Paper: Appendix C.3, "T5-style relative positional embeddings"; Raffel et al. 2020, Section 2.1.
"""

from math import log, sqrt

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

NUM_BUCKETS = 32
MAX_DISTANCE = 128


def distance_bucket(
    distance: Int[np.ndarray, "..."],
    bidirectional: bool = True,
    num_buckets: int = NUM_BUCKETS,
    max_distance: int = MAX_DISTANCE,
) -> Int[np.ndarray, "..."]:
    """The bucket of the distance from a token to the token it attends to (negative: earlier).

    Half of a direction's buckets hold one distance each. The others widen geometrically up to `max_distance`; all
    larger distances share the last bucket. If bidirectional, the second half of the buckets is for later tokens.
    Otherwise all buckets are for earlier tokens, and later tokens share bucket 0.
    """
    if bidirectional:
        num_buckets //= 2
        offset = np.where(distance > 0, num_buckets, 0)
        steps = np.abs(distance)
    else:
        offset = 0
        steps = np.maximum(-distance, 0)
    exact = num_buckets // 2
    widening = np.log(np.maximum(steps, exact) / exact) / log(max_distance / exact)  # 0 at `exact`, 1 at the maximum
    far = exact + np.floor(widening * (num_buckets - exact) + 1e-9).astype(int)
    return offset + np.where(steps < exact, steps, np.minimum(far, num_buckets - 1))


class PositionBias(eqx.Module):
    """The bias table of one block, or of all blocks if they share it."""

    table: Float[Array, "heads buckets"]
    bidirectional: bool = eqx.field(static=True)
    max_distance: int = eqx.field(static=True)

    def __init__(
        self,
        num_heads: int,
        bidirectional: bool,
        num_buckets: int = NUM_BUCKETS,
        max_distance: int = MAX_DISTANCE,
        *,
        key: Key[Array, ""],
    ):
        self.table = jax.random.normal(key, (num_heads, num_buckets), jnp.float32) / sqrt(num_buckets)
        self.bidirectional, self.max_distance = bidirectional, max_distance

    def __call__(self, num_tokens: int) -> Float[Array, "heads tokens tokens"]:
        token = np.arange(num_tokens)
        distance = token[None, :] - token[:, None]
        return self.table[:, distance_bucket(distance, self.bidirectional, self.table.shape[1], self.max_distance)]
