"""The interface of a model: it maps one episode to a prediction and a trace of intermediate results."""

from typing import NamedTuple, Protocol, runtime_checkable

import equinox as eqx
from jaxtyping import Array, Float


class Trace(eqx.Module):
    """Intermediate results of a model. Any of them may be missing; measures that need a missing one are skipped."""

    residual: Float[Array, "points token embed"] | None = None
    """The residual stream at every token: after the embedding, and after each block."""
    attention: Float[Array, "layer head token token"] | None = None
    """The attention weights: the row is the token that attends, the column the token attended to."""
    latent: Float[Array, "latent"] | None = None
    """The inferred task code ẑ."""


class Output(NamedTuple):
    """The predicted label of the query, and the trace."""

    y: Float[Array, "*out"]
    """One number; with o > 1 outputs, a vector of shape (o,)."""
    trace: Trace


class BatchOutput(NamedTuple):
    """The predictions for a batch of episodes, and the trace of the last token as far as the model returns one."""

    y: Float[Array, "B *out"]
    residual: Float[Array, "B points embed"] | None
    """The residual stream at the last token, which the read-out reads: after the embedding, and after each block."""
    latent: Float[Array, "B latent"] | None


@runtime_checkable
class Model(Protocol):
    """Maps one episode to a prediction. The query's label is not an argument, so it cannot leak.

    A model that draws random numbers while it is trained (dropout, say) takes one more argument, the keyword `key`,
    which is None outside training: `__call__(self, context_x, context_y, query_x, *, key=None)`.
    """

    def __call__(
        self,
        context_x: Float[Array, "context d"],
        context_y: Float[Array, "context *out"],
        query_x: Float[Array, "d"],
    ) -> Output: ...


@runtime_checkable
class LatentModel(Model, Protocol):
    """A model that infers a latent from the context (`trace.latent`), and can execute any latent on any input."""

    def execute(self, z: Float[Array, "latent"], x: Float[Array, "d"]) -> Float[Array, "*out"]: ...
