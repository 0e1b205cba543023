"""What a model returns: its prediction, and what it computed on the way."""

from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, Float


class Trace(eqx.Module):
    """What a model computed on the way. A model need not fill it; what needs a missing part is not reported."""

    residual: Float[Array, "points token embed"] | None = None
    """The residual stream at every token: after the embedding, and after each block."""
    attention: Float[Array, "layer head token token"] | None = None
    """The attention weights: row = the token that looks, column = the token looked at."""
    latent: Float[Array, "latent"] | None = None
    """The inferred task code ẑ."""


class Reading(NamedTuple):
    """For a batch of episodes: the predictions, and what was computed on the way, where a model tells."""

    y: Float[Array, "B"]
    residual: Float[Array, "B points embed"] | None
    """The residual stream at the last token, which the read-out sees: after the embedding, and after each block."""
    latent: Float[Array, "B latent"] | None


class Output(NamedTuple):
    """The predicted label of the query, and the trace."""

    y: Float[Array, ""]
    trace: Trace
