"""The oracle: the true teacher, with the latent that fits the context best."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recombine.task.episode import Episode
from recombine.task.teacher import HypernetworkTeacher, Teacher, activate, operator_norm

MOST_ITERATIONS = 200
SOLVED = 1e-10  # as a fraction of the labels' sum of squares: a thousand times the rounding error of float32 labels
STALLED = 1e4  # above this damping, a start is abandoned
SLOW = 1e-3  # below this relative gain, a start is abandoned


def fit_scaled_latent(teacher: Teacher, episode: Episode) -> Float[Array, "M"]:
    """argmin_v Σ_i ‖y_i − A σ(Σ_m v_m θ_m x_i)‖² by Levenberg–Marquardt.

    The teacher divides W(z) by its norm, so v stands for z/‖W(z)‖ and is unbounded. The masks are not used. The first
    start is the least-squares fit of σ's linear part (σ(u) ≈ u/2); with enough context it suffices. With short contexts
    there are local minima. If a start ends in one, the next is tried (each module alone, then all equally), until one
    explains the labels. The best result is returned.
    """
    x, y = episode.context_x, episode.context_y
    M = teacher.num_modules
    starts = jnp.concatenate([jnp.eye(M, dtype=y.dtype), jnp.ones((1, M), y.dtype)])
    if isinstance(teacher, HypernetworkTeacher) and teacher.deeper is None:
        label, starts = _one_layer(teacher, x, y, starts)
    else:
        label = partial(teacher.label_scaled, x=x)

    def residual(v: Float[Array, "M"]) -> Float[Array, "rows"]:
        return (label(v) - y).ravel()  # a row for each output of each example

    def loss(v: Float[Array, "M"]) -> Float[Array, ""]:
        return jnp.sum(residual(v) ** 2)

    solved = SOLVED * jnp.sum(y**2)
    relaxed = jnp.asarray(1e-2, y.dtype)

    def unfinished(carry) -> Array:
        iteration, start, _, _, _, best_loss = carry
        return (iteration < MOST_ITERATIONS) & (start < len(starts)) & (best_loss > solved)

    def iterate(carry):
        iteration, start, v, damping, best, best_loss = carry
        before = loss(v)
        candidate = v - _damped_step(jax.jacfwd(residual)(v), residual(v), damping)
        after = loss(candidate)
        better = after < before
        given_up = (damping > STALLED) | (better & (after > (1 - SLOW) * before) & (after > solved))
        v, value = jnp.where(better, candidate, v), jnp.where(better, after, before)
        best, best_loss = jnp.where(value < best_loss, v, best), jnp.minimum(value, best_loss)
        start = start + given_up
        v = jnp.where(given_up, starts[jnp.minimum(start, len(starts) - 1)], v)
        damping = jnp.where(given_up, relaxed, jnp.where(better, jnp.maximum(damping / 8, 1e-9), damping * 4))
        return iteration + 1, start, v, damping, best, best_loss

    first = (jnp.asarray(0), jnp.asarray(0), starts[0], relaxed, starts[0], loss(starts[0]))
    return jax.lax.while_loop(unfinished, iterate, first)[4]


def _one_layer(
    teacher: HypernetworkTeacher, x: Float[Array, "n d"], y: Float[Array, "n *out"], mixtures: Float[Array, "s M"]
) -> tuple[Callable[[Float[Array, "M"]], Float[Array, "n *out"]], Float[Array, "starts M"]]:
    """The labels of a network of one layer, as a function of v, and the starts: scaled, and the linear fit first."""
    P = jnp.einsum("mhd,nd->nmh", teacher.theta, x)  # each module applied to each input

    def label(v: Float[Array, "M"]) -> Float[Array, "n *out"]:
        return activate(jnp.einsum("m,nmh->nh", v, P), teacher.activation) @ teacher.a.T

    norms = jax.vmap(operator_norm)(jnp.einsum("sm,mhd->shd", mixtures, teacher.theta))
    starts = teacher.weight_scale * mixtures / norms[:, None]
    if teacher.activation == "even":  # it has no linear part
        return label, starts
    slopes = jnp.moveaxis(0.5 * P @ teacher.a.T, 1, -1).reshape(-1, len(mixtures[0]))  # rows × modules
    linear = _damped_step(slopes, y.ravel(), jnp.asarray(1e-3, y.dtype))
    return label, jnp.concatenate([linear[None], starts])


def _damped_step(J: Float[Array, "rows M"], r: Float[Array, "rows"], damping: Float[Array, ""]) -> Float[Array, "M"]:
    gram = J.T @ J
    scale = jnp.trace(gram) / len(gram) + jnp.finfo(gram.dtype).tiny
    factor = jax.scipy.linalg.cho_factor(gram + damping * scale * jnp.eye(len(gram), dtype=gram.dtype))
    return jax.scipy.linalg.cho_solve(factor, J.T @ r)


def oracle(teacher: Teacher, episode: Episode) -> Float[Array, "*out"]:
    """The true task network, at the best-fitting latent, on the query."""
    return teacher.label_scaled(fit_scaled_latent(teacher, episode), episode.query_x)
