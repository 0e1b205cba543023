"""Probes of the context's tokens: two alternative readings of the paper's probe, which reads the last token here.

The paper's "residual stream" may also mean the tokens of the context. Then either each context token is an example for
the regression, or the mean of an episode's context tokens is. All tokens of all episodes would not fit in memory, but
they need not: ridge regression and its R² depend only on second moments.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recombine.measure.evaluated import EvaluatedModel
from recombine.measure.predict import in_chunks
from recombine.model.forward import extra_pair
from recombine.model.framework.torch_model import TorchModel
from recombine.model.interface import Model
from recombine.numerics import exact_jit
from recombine.paper import PROBE_STRENGTH
from recombine.record.codec import Record
from recombine.record.score import PointScores
from recombine.task.episode import Episode


class Moments(NamedTuple):
    """Sums of products of (features, latent, 1) with themselves, for each point of the residual stream."""

    each: Float[np.ndarray, "points k k"]
    """Over all tokens of the contexts."""
    mean: Float[np.ndarray, "points k k"]
    """Over the contexts' means."""


class TokenDecoded(NamedTuple):
    """R² of the decoded latent at each point of the residual stream."""

    each: tuple[float | None, ...]
    mean: tuple[float | None, ...]


class TokenProbes(Record, frozen=True):
    """The probe's scores when an example is each context token, and when it is the mean of a context's tokens."""

    each: PointScores
    mean: PointScores


def measure_token_probes(evaluated: EvaluatedModel) -> TokenProbes | None:
    """None for a model that returns no residual stream, and for one that JAX does not compute."""
    if isinstance(evaluated.model, TorchModel):
        return None
    fitted_on = token_moments(evaluated.model, evaluated.fit_episodes)
    if fitted_on is None:
        return None
    each, mean = {}, {}
    for split, episodes in evaluated.episodes.items():
        scored_on = token_moments(evaluated.model, episodes)
        assert scored_on is not None
        each[split], mean[split] = score_token_probe(fitted_on, scored_on, evaluated.config.task.num_modules)
    return TokenProbes(PointScores(**each), PointScores(**mean))


def token_moments(model: Model, episodes: Episode) -> Moments | None:
    """The moments over the context tokens. None for a model that returns no residual stream."""
    found = _chunk_moments(model, episodes)
    return None if found is None else Moments(*(np.asarray(sums, np.float64).sum(axis=0) for sums in found))


def score_token_probe(fitted_on: Moments, scored_on: Moments, latent_dim: int) -> TokenDecoded:
    """R² of a probe that is fitted on the moments of some episodes and scored on those of others."""
    return TokenDecoded(
        *(
            tuple(_score(fit, other, latent_dim) for fit, other in zip(one, another, strict=True))
            for one, another in zip(fitted_on, scored_on, strict=True)
        )
    )


@exact_jit
def _chunk_moments(model: Model, episodes: Episode) -> tuple[Array, Array] | None:
    def chunk(inputs: tuple[Array, ...]) -> tuple[Array, Array] | None:
        *shown, latent = inputs
        residual = jax.vmap(model)(*shown).trace.residual
        if residual is None:
            return None
        context = residual[:, :, :-1]
        one = jnp.broadcast_to(latent[:, None, None], (*context.shape[:3], latent.shape[-1]))
        rows = jnp.concatenate([context, one, jnp.ones((*context.shape[:3], 1))], axis=-1)
        products = lambda rows: jnp.einsum("eptk,eptl->pkl", rows, rows, precision="highest")  # noqa: E731
        return products(rows)[None], products(rows.mean(axis=2, keepdims=True))[None]

    return in_chunks(chunk, (*episodes.shown(extra_pair(model)), episodes.latent))


def _score(fitted_on: np.ndarray, scored_on: np.ndarray, latent_dim: int) -> float | None:
    width = len(fitted_on) - latent_dim - 1
    h, z = slice(0, width), slice(width, width + latent_dim)
    centred = fitted_on - np.outer(fitted_on[-1], fitted_on[-1]) / fitted_on[-1, -1]
    weights = np.linalg.solve(centred[h, h] + PROBE_STRENGTH * np.eye(width), centred[h, z])
    mean = fitted_on[-1] / fitted_on[-1, -1]
    # The error z − h weights − intercept is (h, z, 1) B, so the sums of its squares are the diagonal of Bᵀ (moments) B.
    B = np.concatenate([-weights, np.eye(latent_dim), -(mean[z] - mean[h] @ weights)[None]])
    spread = np.trace((scored_on - np.outer(scored_on[-1], scored_on[-1]) / scored_on[-1, -1])[z, z])
    return float(1 - np.trace(B.T @ scored_on @ B) / spread) if spread > 0 else None
