"""What a model is: one episode in, a prediction out, and what it computed on the way."""

from typing import NamedTuple, Protocol, runtime_checkable

import equinox as eqx
from jaxtyping import Array, Float


class Trace(eqx.Module):
    """What a model computed on the way. A model may leave any part out; measures that need the part are skipped."""

    residual: Float[Array, "points token embed"] | None = None
    """The residual stream at every token: after the embedding, and after each block."""
    attention: Float[Array, "layer head token token"] | None = None
    """The attention weights: row = the token that looks, column = the token looked at."""
    latent: Float[Array, "latent"] | None = None
    """The inferred task code ẑ."""


class Output(NamedTuple):
    """The predicted label of the query, and the trace."""

    y: Float[Array, ""]
    trace: Trace


class BatchOutput(NamedTuple):
    """For a batch of episodes: the predictions, and what the last token went through, where a model tells."""

    y: Float[Array, "B"]
    residual: Float[Array, "B points embed"] | None
    """The residual stream at the last token, which the read-out sees: after the embedding, and after each block."""
    latent: Float[Array, "B latent"] | None


@runtime_checkable
class Model(Protocol):
    """One episode in, a prediction out. The query's label is not among the arguments, so it cannot leak."""

    def __call__(
        self,
        context_x: Float[Array, "context d"],
        context_y: Float[Array, "context"],
        query_x: Float[Array, "d"],
    ) -> Output: ...


@runtime_checkable
class LatentModel(Model, Protocol):
    """A model that infers a latent from the context (`trace.latent`), and can execute any latent on any input."""

    def execute(self, z: Float[Array, "latent"], x: Float[Array, "d"]) -> Float[Array, ""]: ...
