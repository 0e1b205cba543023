# pyright: reportMissingImports=false
"""Flax linen with Optax: stock layers, and one jitted step per call.

There is no position bias: Flax's attention has none built in. So this peer does a little less than the paper's model.
AdamW decays all parameters, as it does by default.
"""

from math import sqrt

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.training.train_state import TrainState
from jaxtyping import Array, Float, Key

from recombine.bench.peer.jax_task import Episodes, init_teacher, sample_episodes
from recombine.bench.setting import PeerSetting, Stepper

__all__ = ["REQUIRES", "make_stepper"]

REQUIRES: tuple[str, ...] = ("flax", "jax", "optax")

EPSILON = 1e-5  # of every LayerNorm, as in the other contenders; Flax has 1e-6 by default


class Block(nn.Module):
    """Attention, then feedforward: each reads the normalised stream and adds to it."""

    setting: PeerSetting

    @nn.compact
    def __call__(self, X: Float[Array, "B tokens embed"]) -> Float[Array, "B tokens embed"]:
        width = self.setting.embed_dim
        X = X + nn.MultiHeadDotProductAttention(num_heads=self.setting.num_heads)(nn.LayerNorm(EPSILON)(X))
        hidden = nn.gelu(nn.Dense(self.setting.ffn_factor * width)(nn.LayerNorm(EPSILON)(X)), approximate=False)
        return X + nn.Dense(width)(hidden)


class Trunk(nn.Module):
    """(x₁, y₁), …, (x_{N−1}, y_{N−1}), (last_x, 0) through all layers; returns the last token's state."""

    setting: PeerSetting

    @nn.compact
    def __call__(
        self, context_x: Float[Array, "B context d"], context_y: Float[Array, "B context"], last_x: Float[Array, "B d"]
    ) -> Float[Array, "B embed"]:
        x = jnp.concatenate([context_x, last_x[:, None]], axis=1)
        y = jnp.pad(context_y, ((0, 0), (0, 1)))
        X = nn.Dense(self.setting.embed_dim)(jnp.concatenate([x, y[..., None]], axis=-1))
        for _ in range(self.setting.num_layers):
            X = Block(self.setting)(X)
        return nn.LayerNorm(EPSILON)(X)[:, -1]


class Transformer(nn.Module):
    """A trunk that sees the query, and a readout."""

    setting: PeerSetting

    @nn.compact
    def __call__(
        self, context_x: Float[Array, "B context d"], context_y: Float[Array, "B context"], query_x: Float[Array, "B d"]
    ) -> Float[Array, "B"]:
        return nn.Dense(1)(Trunk(self.setting)(context_x, context_y, query_x)).squeeze(-1)


class Hypertransformer(nn.Module):
    """A trunk that sees zeros for the query and infers z. The prediction is readout(σ(W x)) with W = Σ_m z_m θ_m."""

    setting: PeerSetting

    @nn.compact
    def __call__(
        self, context_x: Float[Array, "B context d"], context_y: Float[Array, "B context"], query_x: Float[Array, "B d"]
    ) -> Float[Array, "B"]:
        setting = self.setting
        z = nn.Dense(setting.latent_dim)(Trunk(setting)(context_x, context_y, jnp.zeros_like(query_x)))
        init = nn.initializers.normal(1 / sqrt(setting.latent_dim * setting.input_dim))
        theta = self.param("theta", init, (setting.latent_dim, setting.main_hidden_dim, setting.input_dim))
        W = jnp.einsum("bm,mhd->bhd", z, theta)
        hidden = nn.gelu(jnp.einsum("bhd,bd->bh", W, query_x), approximate=False)
        return nn.Dense(1)(hidden).squeeze(-1)


def build_state(key: Key[Array, ""], setting: PeerSetting) -> TrainState:
    """The model, its parameters and the optimiser."""
    model = Transformer(setting) if setting.kind == "transformer" else Hypertransformer(setting)
    context_x = jnp.zeros((1, setting.episode_length - 1, setting.input_dim))
    variables = jax.jit(model.init)(key, context_x, context_x[..., 0], context_x[:, 0])
    schedule = optax.cosine_decay_schedule(setting.learning_rate, setting.num_steps)
    optimizer = optax.chain(
        optax.clip_by_global_norm(setting.clip_norm), optax.adamw(schedule, weight_decay=setting.weight_decay)
    )
    return TrainState.create(apply_fn=model.apply, params=variables["params"], tx=optimizer)


def query_loss(state: TrainState, params: optax.Params, episodes: Episodes) -> Float[Array, ""]:
    prediction = state.apply_fn({"params": params}, episodes.context_x, episodes.context_y, episodes.query_x)
    return jnp.mean((prediction - episodes.query_y) ** 2)


def make_stepper(setting: PeerSetting) -> Stepper:
    init_key, teacher_key, data_key = jax.random.split(jax.random.key(setting.seed), 3)
    teacher = init_teacher(teacher_key, setting)
    masks = jnp.array(setting.masks, jnp.float32)
    state = build_state(init_key, setting)

    @jax.jit
    def train_step(state: TrainState) -> tuple[TrainState, Float[Array, ""]]:
        episodes = sample_episodes(jax.random.fold_in(data_key, state.step), setting, teacher, masks)
        loss, gradient = jax.value_and_grad(lambda params: query_loss(state, params, episodes))(state.params)
        return state.apply_gradients(grads=gradient), loss

    def run(num_steps: int) -> float:
        nonlocal state
        for _ in range(num_steps - 1):
            state, _ = train_step(state)
        state, loss = train_step(state)
        return float(loss)

    return run
