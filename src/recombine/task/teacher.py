"""The teacher: the linear hypernetwork that turns a latent into a task.

Paper: Appendix C.1 (app:task_generation).
"""

from collections.abc import Sequence
from math import sqrt

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Key

from recombine.config.schema import Config
from recombine.config.task import HYPERNETWORK, Activation, InputDistribution, TaskConfig
from recombine.errors import InputError
from recombine.numerics import exact_jit
from recombine.stream import Stream, stream_key
from recombine.support.masks import Mask, active_modules
from recombine.support.support import Support
from recombine.task.custom_task import draw_custom
from recombine.task.interface import Teacher

Weights = Float[Array, "h d"] | tuple[Float[Array, "h _"], ...]
"""The weights of a task network: W, or one matrix for each of several hidden layers."""


class HypernetworkTeacher(Teacher):
    """The modules θ₁ … θ_M and the readout a that all tasks share."""

    theta: Float[Array, "M h d"]
    a: Float[Array, "*out h"]
    """With several outputs, a row for each: the matrix A."""
    deeper: Float[Array, "layers M h h"] | None = None
    """The modules of the task network's further hidden layers. The paper's has none."""
    activation: Activation = eqx.field(default="gelu", static=True)
    weight_scale: float = eqx.field(default=1.0, static=True)
    label_noise: float = eqx.field(default=0.0, static=True)
    input_distribution: InputDistribution = eqx.field(default="uniform", static=True)
    unit_norm: bool = eqx.field(default=True, static=True)

    @property
    def num_modules(self) -> int:
        return self.theta.shape[-3]

    @property
    def input_dim(self) -> int:
        return self.theta.shape[-1]

    @property
    def hidden_dim(self) -> int:
        return self.theta.shape[-2]

    @property
    def label_shape(self) -> tuple[int, ...]:
        return self.a.shape[self.theta.ndim - 3 : -1]  # without the leading axes of many teachers

    def mix(self, v: Float[Array, "M"]) -> Float[Array, "h d"]:
        """Σ_m v_m θ_m, not normalised."""
        return jnp.einsum("m,mhd->hd", v, self.theta)

    def task_weights(self, z: Float[Array, "M"]) -> Weights:
        """W(z) = Σ_m z_m θ_m, divided by its operator norm. Deeper networks have one such matrix for each layer."""
        W = self._normalise(self.mix(z))
        if self.deeper is None:
            return W
        return W, *(self._normalise(jnp.einsum("m,mhk->hk", z, theta)) for theta in self.deeper)

    def network(self, weights: Weights, x: Float[Array, "... d"]) -> Float[Array, "..."]:
        return task_network(weights, self.a, x, self.activation)

    def label(self, z: Float[Array, "M"], x: Float[Array, "... d"]) -> Float[Array, "..."]:
        """y = aᵀ σ(W(z) x), with σ the GELU; with several outputs, y = A σ(W(z) x)."""
        return self.network(self.task_weights(z), x)

    def scaled(self, z: Float[Array, "M"]) -> Float[Array, "M"]:
        """v = z / ‖Σ_m z_m θ_m‖. Only a network of one layer has weights that are linear in it."""
        if self.deeper is not None:
            return z
        v = z / operator_norm(self.mix(z)) if self.unit_norm else z
        return v if self.weight_scale == 1 else self.weight_scale * v

    def label_scaled(self, v: Float[Array, "M"], x: Float[Array, "... d"]) -> Float[Array, "..."]:
        """The label for a scaled latent. The weights of the task network are linear in v."""
        return self.label(v, x) if self.deeper is not None else self.network(self.mix(v), x)

    def redraw(self, key: Key[Array, ""]) -> "HypernetworkTeacher":
        M, h, d = self.theta.shape
        layers = 1 if self.deeper is None else 1 + len(self.deeper)
        rules = (self.activation, self.weight_scale, self.label_noise, self.input_distribution, self.unit_norm)
        return init_teacher(key, M, d, h, layers, *rules, label_shape=self.label_shape)

    def with_readout(self, own: Teacher, keep: bool | Bool[Array, ""]) -> "HypernetworkTeacher":
        assert isinstance(own, HypernetworkTeacher)
        return eqx.tree_at(lambda teacher: teacher.a, self, jnp.where(keep, own.a, self.a))

    def _normalise(self, W: Float[Array, "h k"]) -> Float[Array, "h k"]:
        W = W / operator_norm(W) if self.unit_norm else W
        return W if self.weight_scale == 1 else self.weight_scale * W


def task_network(
    weights: Weights, a: Float[Array, "*out h"], x: Float[Array, "... d"], activation: Activation = "gelu"
) -> Float[Array, "..."]:
    """g(x, W) = aᵀ σ(W x): one hidden layer, no biases. Several matrices make several hidden layers."""
    for W in weights if isinstance(weights, tuple) else (weights,):
        x = activate(x @ W.T, activation)
    return x @ a.T


def activate(u: Float[Array, "..."], activation: Activation) -> Float[Array, "..."]:
    """σ: the paper's is the GELU. The even one is gelu(u) + gelu(−u), which no function linear in x resembles."""
    match activation:
        case "gelu":
            return jax.nn.gelu(u, approximate=False)
        case "relu":
            return jax.nn.relu(u)
        case "even":
            return jax.nn.gelu(u, approximate=False) + jax.nn.gelu(-u, approximate=False)


def operator_norm(W: Float[Array, "h d"]) -> Float[Array, ""]:
    """The largest singular value."""
    return jnp.linalg.norm(W, ord=2)


def init_teacher(
    key: Key[Array, ""],
    num_modules: int,
    input_dim: int,
    hidden_dim: int,
    num_layers: int = 1,
    activation: Activation = "gelu",
    weight_scale: float = 1.0,
    label_noise: float = 0.0,
    input_distribution: InputDistribution = "uniform",
    unit_norm: bool = True,
    label_shape: tuple[int, ...] = (),
) -> HypernetworkTeacher:
    """θ and a have i.i.d. normal entries of standard deviation 1/√M and 1/√h, truncated at two standard deviations."""
    theta_key, a_key = jax.random.split(key)
    theta = jax.random.truncated_normal(theta_key, -2.0, 2.0, (num_modules, hidden_dim, input_dim), jnp.float32)
    a = jax.random.truncated_normal(a_key, -2.0, 2.0, (*label_shape, hidden_dim), jnp.float32)
    deeper = None
    if num_layers > 1:
        shape = (num_layers - 1, num_modules, hidden_dim, hidden_dim)
        deeper_key = jax.random.fold_in(key, 2)  # a third child: the first two are the keys above
        deeper = jax.random.truncated_normal(deeper_key, -2.0, 2.0, shape, jnp.float32) / sqrt(num_modules)
    return HypernetworkTeacher(
        theta=theta / sqrt(num_modules),
        a=a / sqrt(hidden_dim),
        deeper=deeper,
        activation=activation,
        weight_scale=weight_scale,
        label_noise=label_noise,
        input_distribution=input_distribution,
        unit_norm=unit_norm,
    )


def seed_teacher(seed: int, support: Support, input_dim: int, hidden_dim: int) -> HypernetworkTeacher:
    """The paper's teacher of a seed."""
    return _jit_init_teacher(stream_key(seed, Stream.teacher), support.num_modules, input_dim, hidden_dim)


def task_teacher(task: TaskConfig, seed: int) -> Teacher:
    """The teacher of a task and a seed."""
    if task.kind != HYPERNETWORK:
        return draw_custom(stream_key(seed, Stream.teacher), task)
    if task.is_paper:
        return seed_teacher(seed, task.support, task.input_dim, task.hidden_dim)
    sizes = (task.num_modules, task.input_dim, task.hidden_dim, task.num_layers)
    rules = (task.activation, task.weight_scale, task.label_noise, task.input_distribution, task.unit_norm)
    key = stream_key(seed, Stream.teacher)
    return _jit_init_teacher(key, *sizes, *rules, label_shape=task.label_shape)


def config_teacher(config: Config) -> Teacher:
    """The teacher of a run."""
    return task_teacher(config.task, config.seed if config.teacher_seed is None else config.teacher_seed)


def check_teacher(teacher: Teacher, masks: Sequence[Mask]) -> None:
    """Refuse a teacher that has non-finite entries, or for which all modules of some mask are 0.

    With all modules of a mask 0, every task of that mask would have W(z) = 0, which cannot be normalised. If any of
    them is not 0, W(z) = 0 has probability 0.
    """
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(teacher)):
        return
    for name, value in named_leaves(teacher):
        bad = np.asarray(value)[~np.isfinite(value)]
        if bad.size:
            raise InputError(f"teacher.{name}", float(bad[0]), "must be finite everywhere")
    if not isinstance(teacher, HypernetworkTeacher):
        return
    nonzero = np.abs(teacher.theta).max(axis=(1, 2)) > 0
    for mask in masks if not nonzero.all() else ():
        if not nonzero[np.flatnonzero(mask)].any():
            modules = ", ".join(map(str, active_modules(mask)))
            raise InputError("teacher.theta", 0.0, f"all modules of the mask ({modules}) are 0: W has operator norm 0")


def named_leaves(teacher: Teacher) -> list[tuple[str, np.ndarray]]:
    """The teacher's arrays of numbers, by name."""
    leaves, _ = jax.tree.flatten_with_path(eqx.filter(teacher, eqx.is_inexact_array))
    return [(jax.tree_util.keystr(path, simple=True, separator="."), np.asarray(leaf)) for path, leaf in leaves]


_jit_init_teacher = exact_jit(init_teacher)
