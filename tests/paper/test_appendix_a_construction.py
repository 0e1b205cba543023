"""Appendix A (app:hnet_construction): the linear transformer, and the construction that makes it a hypernetwork."""

import json
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erf

from recombine.cli.main import main
from recombine.config.preset import preset_config
from recombine.config.toml import override
from recombine.errors import InputError
from recombine.model.architecture.linear_attention import LinearAttention, from_construction
from recombine.model.build import build_model
from recombine.model.construction import construct, construction_output, construction_tokens
from recombine.model.linear_transformer import LinearTransformer, init_linear_transformer


def gelu(u: np.ndarray) -> np.ndarray:
    return u * (1 + erf(u / np.sqrt(2))) / 2


def forward_by_numpy(model: LinearTransformer, E: np.ndarray) -> np.ndarray:
    """Appendix A.1's two updates, one head at a time, in float64."""
    for block in model.blocks:
        W: dict[str, Any] = {name: np.asarray(getattr(block, name), float) for name in vars(block)}
        attended = np.zeros_like(E)
        for W_q, W_k, W_v, W_P in zip(W["W_q"], W["W_k"], W["W_v"], W["W_P"], strict=True):
            Q, K, V = E @ W_q, E @ W_k, E @ W_v
            attended += Q @ K.T @ V @ W_P
        E = E + attended
        E = E + gelu(E @ W["W_1"]) @ W["W_2"]
    return E


@pytest.mark.parametrize("layers", [1, 3])
def test_linear_transformer(layers: int) -> None:
    model = init_linear_transformer(jax.random.key(0), layers, num_heads=3, d_m=6, d_k=2, d_v=4, d_h=5)
    E = 0.5 * jax.random.normal(jax.random.key(1), (7, 6))
    np.testing.assert_allclose(model(E), forward_by_numpy(model, np.asarray(E, float)), rtol=1e-3, atol=1e-4)


@jax.jit
def constructed(theta: jax.Array, A: jax.Array, x: jax.Array, z: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The last residual stream, and the output: one program for each choice of sizes."""
    (o, h), model = A.shape, construct(theta, A)
    E = model(construction_tokens(x, z, h, o))
    return E, construction_output(E, o)


sizes = st.integers(1, 7)


@given(sizes, sizes, sizes, sizes, st.integers(0, 10_000))
@settings(max_examples=12)
def test_the_construction_is_the_hypernetwork(M: int, d: int, h: int, o: int, seed: int) -> None:
    """For any sizes, to the precision of float64."""
    rng = np.random.default_rng(seed)
    theta, A = rng.normal(size=(M, h, d)), rng.normal(size=(o, h))
    x, z = rng.normal(size=d), rng.normal(size=M)
    u = np.einsum("m,mhd,d->h", z, theta, x)
    expected = A @ gelu(u)
    with jax.enable_x64(True):
        E, output = map(np.asarray, constructed(theta, A, x, z))
    np.testing.assert_allclose(output, expected, rtol=1e-11, atol=1e-12)
    # "the residual stream would then equal (0_d, zᵀ, W(z)x, 0_o)": the feedforward adds to the output slot alone.
    np.testing.assert_allclose(E[1, : d + M + h], [*np.zeros(d), *z, *u], rtol=1e-11, atol=1e-12)


def test_it_is_ordinary_weights() -> None:
    """The construction's weights, run by the NumPy forward of any linear transformer, give the same answer."""
    rng = np.random.default_rng(0)
    theta, A = rng.normal(size=(3, 5, 4)).astype(np.float32), rng.normal(size=(2, 5)).astype(np.float32)
    x, z = rng.normal(size=4).astype(np.float32), rng.normal(size=3).astype(np.float32)
    model = construct(jnp.asarray(theta), jnp.asarray(A))
    random = init_linear_transformer(jax.random.key(0), 1, num_heads=3, d_m=14, d_k=1, d_v=5, d_h=5)
    assert type(model) is LinearTransformer
    assert jax.tree.map(jnp.shape, model) == jax.tree.map(jnp.shape, random)
    tokens = construction_tokens(jnp.asarray(x), jnp.asarray(z), 5, 2)
    np.testing.assert_allclose(
        forward_by_numpy(model, np.asarray(tokens, float))[1, -2:],
        A @ gelu(np.einsum("m,mhd,d->h", z, theta, x)),
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize("layers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_the_trained_model_can_start_from_it(layers: int) -> None:
    """The weights of `LinearAttention` that compute the hypernetwork, whatever the context, by NumPy."""
    options = {"given_latent": True, "num_heads": 6, "embed_dim": 24, "ffn_factor": 1, "num_layers": layers}
    changes = {"task": {"input_dim": 7, "hidden_dim": 4}, "model": {"options": options}}
    config = override(preset_config("smoke", "linear-attention"), changes)
    fresh = build_model(config, key=jax.random.key(0))
    assert isinstance(fresh, LinearAttention)
    rng = np.random.default_rng(0)
    theta, a = rng.normal(size=(6, 4, 7)).astype(np.float32), rng.normal(size=4).astype(np.float32)
    model = from_construction(fresh, jnp.asarray(theta), jnp.asarray(a))
    assert jax.tree.map(jnp.shape, model) == jax.tree.map(jnp.shape, fresh)
    first = lambda model: model.blocks.blocks[0].W_P  # noqa: E731

    @jax.jit
    def predict(W: jax.Array, *shown: jax.Array) -> jax.Array:
        return eqx.tree_at(first, model, W)(*shown).y

    for context_x, context_y, x in zip(*(rng.normal(size=(3, *size)) for size in ((6, 7), (6,), (7,))), strict=True):
        z = context_x[0, :6]  # the first pair shows the latent
        expected = a @ gelu(np.einsum("m,mhd,d->h", z, theta, x))
        shown = [jnp.asarray(array, jnp.float32) for array in (context_x, context_y, x)]
        np.testing.assert_allclose(predict(first(model), *shown), expected, rtol=1e-4, atol=1e-5)
        assert abs(expected) > 1e-2
    # Nothing is stuck: what each head writes to the stream has a gradient.
    gradient = jax.jit(jax.grad(predict))(first(model), jnp.ones((6, 7)), jnp.ones(6), jnp.ones(7))
    assert (np.abs(gradient).max(axis=(1, 2)) > 0).all()


def test_a_model_too_small_for_it_is_refused() -> None:
    theta, a = jnp.ones((6, 4, 7)), jnp.ones(4)
    for options, field in (({"num_heads": 4, "embed_dim": 24}, "num_heads"), ({"embed_dim": 12}, "embed_dim")):
        changes = {"task": {"input_dim": 7}, "model": {"options": {"given_latent": True, **options}}}
        model = build_model(override(preset_config("smoke", "linear-attention"), changes), key=jax.random.key(0))
        assert isinstance(model, LinearAttention)
        with pytest.raises(InputError, match=rf"model\.options\.{field}"):
            from_construction(model, theta, a)


def test_the_tokens() -> None:
    """e₁ = (x, 0_M, 1_{h+o}), e₂ = (0_d, z, 0_{h+o})."""
    tokens = construction_tokens(jnp.array([1.0, 2.0]), jnp.array([3.0]), hidden_dim=2, output_dim=1)
    np.testing.assert_array_equal(tokens, [[1, 2, 0, 1, 1, 1], [0, 0, 3, 0, 0, 0]])


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["construct", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["max_abs_error"]["float32"] <= 1e-5
    assert result["max_abs_error"]["float64"] <= 1e-12
    assert result["max_abs_error"]["float32"] > result["max_abs_error"]["float64"] > 0  # it did compare something
    assert result["max_abs_output"]["float64"] > 0.5
