"""The linear probe: can the latent be decoded from a model's residual stream?

Paper: Appendix C.2 (app:metric), "Probing latent": ridge regression of strength 1, fitted on in-distribution tasks and
scored on others. The probe reads the same token as the model's own read-out, at every point of the residual stream. A
second probe reads the inferred latent, if the model has one.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from recombine.measure.r2 import explained
from recombine.measure.ridge import Ridge, fit_ridge
from recombine.model.interface import BatchOutput
from recombine.numerics import exact_jit
from recombine.paper import PROBE_STRENGTH


class Probe(NamedTuple):
    """A ridge fit for each point of the residual stream, and for the inferred latent."""

    residual: tuple[Ridge, ...]
    latent: Ridge | None


class Decoded(NamedTuple):
    """R² of the decoded latent, pooled over its entries, relative to the mean latent of the scored tasks."""

    residual: tuple[float | None, ...]
    latent: float | None


def fit_probe(output: BatchOutput, latent: Float[Array, "E M"]) -> Probe | None:
    """None for a model that returns neither a residual stream nor a latent."""
    if output.residual is None and output.latent is None:
        return None
    fits = tuple(_fit(stream, latent) for stream in _streams(output))
    return Probe(fits, None if output.latent is None else _fit(np.asarray(output.latent), latent))


def score_probe(probe: Probe, output: BatchOutput, latent: Float[Array, "E M"]) -> Decoded:
    scores = tuple(decoding_r2(fit, x, latent) for fit, x in zip(probe.residual, _streams(output), strict=True))
    if probe.latent is None or output.latent is None:
        return Decoded(scores, None)
    return Decoded(scores, decoding_r2(probe.latent, output.latent, latent))


def _streams(output: BatchOutput) -> list[np.ndarray]:
    """The residual stream at each point; nothing for a model that returns none."""
    if output.residual is None:
        return []
    residual = np.asarray(output.residual, np.float64)
    return [residual[:, point] for point in range(residual.shape[1])]


def decoding_r2(fit: Ridge, features: ArrayLike, latent: ArrayLike) -> float | None:
    """R² of the decoded latent. None if all tasks have the same latent."""
    return explained(np.asarray(features, np.float64) @ np.asarray(fit.weights) + np.asarray(fit.intercept), latent)


def _fit(features: np.ndarray, latent: ArrayLike) -> Ridge:
    """Fitted in float64, because residual streams are badly conditioned."""
    with jax.enable_x64(True):
        fit = _jit_ridge(jnp.asarray(features, jnp.float64), jnp.asarray(latent, jnp.float64), PROBE_STRENGTH)
        return Ridge(np.asarray(fit.weights), np.asarray(fit.intercept))


_jit_ridge = exact_jit(fit_ridge)
