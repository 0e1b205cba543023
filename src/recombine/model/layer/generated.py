"""The generated layer: a latent mixes modules into the weights of a small network, which maps an input to a label.

The network is also a model of the context: a latent that explains the examples can be found by least squares through
it. Explicit inference does that, by damped Gauss–Newton steps.
"""

from math import log, sqrt
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from recombine.config.model import HypertransformerConfig
from recombine.model.layer.gelu import gelu_and_slope
from recombine.model.layer.linear import Linear, as_label

FIRST_DAMPING = 0.1  # of explicit inference, before training


class GeneratedLayer(eqx.Module):
    """y = readout(σ(W(z) x)) with W(z) = Σ_m z_m θ_m."""

    theta: eqx.AbstractVar[Float[Array, "latent hidden d"]]
    base: eqx.AbstractVar[Float[Array, "hidden d"] | None]
    """θ₀, which is added to W(z)."""
    readout: eqx.AbstractVar[Linear]
    unit_norm: eqx.AbstractVar[bool]
    """Whether W(z) is divided by its operator norm."""
    forward_scale: eqx.AbstractVar[float]
    """A constant factor of W(z)."""
    log_damping: eqx.AbstractVar[Float[Array, "steps"] | None]
    """One learned damping for each step of explicit inference; None: there is none."""

    def execute(self, z: Float[Array, "latent"], x: Float[Array, "d"]) -> Float[Array, "*out"]:
        """Apply the task network of a latent: one hidden GELU layer, the readout."""
        return as_label(self.readout(jax.nn.gelu(self._weights(z) @ x, approximate=False)))

    def _weights(self, z: Float[Array, "latent"]) -> Float[Array, "hidden d"]:
        W = self._mix(z)
        return W / jnp.linalg.norm(W, ord=2) if self.unit_norm else W

    def _mix(self, z: Float[Array, "latent"]) -> Float[Array, "hidden d"]:
        W = jnp.einsum("m,mhd->hd", z, self.theta)
        W = W if self.base is None else W + self.base
        return W if self.forward_scale == 1 else W * self.forward_scale

    def infer(
        self, z: Float[Array, "latent"], x: Float[Array, "context d"], y: Float[Array, "context *out"]
    ) -> Float[Array, "latent"]:
        """Improve a latent on a context: one step of explicit inference for each learned damping."""
        if self.log_damping is None:
            return z
        steps = jnp.exp(self.log_damping.astype(_wide(z.dtype)))
        improved, x, y = (array.astype(steps.dtype) for array in (z, x, y))
        for damping in steps:
            improved = improved + gauss_newton_step(*self._linearised(improved, x, y), damping)
        return improved.astype(z.dtype)

    def _linearised(
        self, z: Float[Array, "latent"], x: Float[Array, "context d"], y: Float[Array, "context *out"]
    ) -> tuple[Float[Array, "rows latent"], Float[Array, "rows"]]:
        """The Jacobian of the predictions in the latent, and the residuals: a row for each output of each example.

        The Jacobian is readout · (σ′ ⊙ θ_m x). It is formed from the left, as (readout · σ′) θ_m, then x: the array in
        between has d numbers for each module and not `hidden`, which makes the gradient of a step 7 times as fast.
        """
        W = self._mix(z).astype(x.dtype)
        norm, norm_slope = jax.value_and_grad(self._norm)(z) if self.unit_norm else (1.0, None)
        before = x @ W.T / norm
        hidden, slope = gelu_and_slope(before)
        readout = as_label(self.readout.weight).astype(x.dtype)
        residual = y - (hidden @ readout + as_label(self.readout.bias))
        slope = slope[:, None] * jnp.atleast_2d(readout.T) * (self.forward_scale / norm)  # examples × outputs × hidden
        num_outputs = slope.shape[1]
        slope = slope.reshape(-1, slope.shape[2])
        x, before = jnp.repeat(x, num_outputs, axis=0), jnp.repeat(before, num_outputs, axis=0)
        jacobian = (jnp.einsum("nh,mhd->nmd", slope, self.theta.astype(x.dtype)) * x[:, None]).sum(axis=-1)
        if norm_slope is not None:
            jacobian = jacobian - jnp.outer((slope * before).sum(axis=1) / self.forward_scale, norm_slope)
        return jacobian, residual.ravel()

    def _norm(self, z: Float[Array, "latent"]) -> Float[Array, ""]:
        return jnp.linalg.norm(self._mix(z).astype(z.dtype), ord=2)


class GeneratedParameters(NamedTuple):
    """The parameters of a generated layer; the fields are those of `GeneratedLayer`."""

    theta: Float[Array, "latent hidden d"]
    base: Float[Array, "hidden d"] | None
    readout: Linear
    log_damping: Float[Array, "steps"] | None


def generated_parameters(
    config: HypertransformerConfig,
    input_dim: int,
    theta_key: Key[Array, ""],
    base_key: Key[Array, ""],
    readout_key: Key[Array, ""],
    output_dim: int = 1,
) -> GeneratedParameters:
    # The entries of ẑ and x start with unit variance. This scale gives the entries of W(ẑ) x standard deviation
    # init_scale.
    scale = config.init_scale / sqrt((config.latent_dim + config.base_weights) * input_dim)
    scale /= forward_scale(config, input_dim)  # with or without it, the model starts as the same function
    shape, steps = (config.hidden_dim, input_dim), config.inference_steps
    theta = scale * jax.random.normal(theta_key, (config.latent_dim, *shape), jnp.float32)
    base = scale * jax.random.normal(base_key, shape, jnp.float32) if config.base_weights else None
    log_damping = jnp.full(steps, log(FIRST_DAMPING), jnp.float32) if steps else None
    return GeneratedParameters(theta, base, Linear(config.hidden_dim, output_dim, key=readout_key), log_damping)


def forward_scale(config: HypertransformerConfig, input_dim: int) -> float:
    return 1 / sqrt(input_dim) if config.scaled_forward else 1.0


def gauss_newton_step(
    jacobian: Float[Array, "rows latent"], residual: Float[Array, "rows"], damping: Float[Array, ""]
) -> Float[Array, "latent"]:
    """(JᵀJ + λ I)⁻¹ Jᵀ r. The damping is relative: λ = damping · the mean eigenvalue of JᵀJ.

    So a step does not depend on the scale of the latent, which is arbitrary.
    """
    normal = jacobian.T @ jacobian
    size = len(normal)
    smallest = jnp.finfo(normal.dtype).tiny ** 0.5  # a latent that changes nothing stays where it is
    ridge = damping * jnp.trace(normal) / size + smallest
    return solve_positive(normal + ridge * jnp.eye(size, dtype=normal.dtype), jacobian.T @ residual)


def solve_positive(A: Float[Array, "n n"], b: Float[Array, "n"]) -> Float[Array, "n"]:
    """A⁻¹ b for a symmetric positive definite matrix, by elimination, which needs no pivoting there.

    Every operation acts on a whole batch of systems; LAPACK, called once for each of them, takes 3 times as long.
    """
    unit = jnp.eye(len(b), dtype=A.dtype)

    def eliminate(j: Int[Array, ""], rows: Float[Array, "n n+1"]) -> Float[Array, "n n+1"]:
        return rows - jnp.outer(rows[:, j] - unit[j], rows[j] / rows[j, j])

    def solve(_: object, right: Float[Array, "n"]) -> Float[Array, "n"]:
        return jax.lax.fori_loop(0, len(right), eliminate, jnp.column_stack([A, right]))[:, -1]

    return jax.lax.custom_linear_solve(lambda v: A @ v, b, solve, symmetric=True)


def _wide(dtype: jnp.dtype) -> jnp.dtype:
    """At least float32: a system of equations cannot be solved in less."""
    return jnp.promote_types(dtype, jnp.float32)
