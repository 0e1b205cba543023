"""The baselines against NumPy, with the docs' parameter counts; the meta-learned hypernetwork; names of weights."""

import re
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf

from recombine.cli.main import main
from recombine.config.model import BASELINES, CustomModelConfig
from recombine.config.preset import preset_config
from recombine.config.schema import Config
from recombine.config.toml import default_model, override
from recombine.errors import InputError
from recombine.measure.predict import predict
from recombine.model.architecture.hypernetwork import Hypernetwork
from recombine.model.architecture.linear_attention import from_construction
from recombine.model.build import build_model, count_parameters
from recombine.model.custom import check_custom
from recombine.model.weights import named_arrays, replace_arrays
from recombine.task.sample import sample_split
from recombine.task.teacher import config_teacher

OURS = [name for name in BASELINES if name not in ("bottleneck", "hypernetwork")]  # these have tests of their own
SETS = ["deep-set", "perceiver"]  # the order of the pairs does not matter


def episode(config: Config, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng, (n, d) = np.random.default_rng(seed), (config.task.episode_length - 1, config.task.input_dim)
    return tuple(rng.normal(size=shape).astype(np.float32) for shape in ((n, d), (n,), (d,)))  # pyright: ignore


def smoke(name: str) -> Config:
    return preset_config("smoke", name)


def gelu(u: np.ndarray) -> np.ndarray:
    return u * (1 + erf(u / np.sqrt(2))) / 2


def layer_norm(x: np.ndarray, w: dict[str, np.ndarray], name: str) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]


def linear(x: np.ndarray, w: dict[str, np.ndarray], name: str) -> np.ndarray:
    return x @ w[f"{name}.weight"] + w[f"{name}.bias"]


def feedforward(x: np.ndarray, w: dict[str, np.ndarray], name: str) -> np.ndarray:
    return linear(gelu(linear(x, w, f"{name}.expand")), w, f"{name}.contract")


def softmax(s: np.ndarray) -> np.ndarray:
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def sigmoid(u: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-u))


def code_then_mlp(w: dict[str, np.ndarray], z: np.ndarray, query: np.ndarray) -> float:
    return feedforward(gelu(feedforward(np.append(z, query), w, "mix")), w, "readout")[0]


def deep_set(w: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray, query: np.ndarray) -> float:
    return code_then_mlp(w, feedforward(np.column_stack([x, y]), w, "encode").mean(0), query)


def recurrent(w: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray, query: np.ndarray) -> float:
    h = np.zeros(16)
    for u in linear(np.column_stack([x, y]), w, "embedding"):
        reset, stay = np.split(sigmoid(linear(np.append(h, u), w, "gates")), 2)
        h = stay * h + (1 - stay) * np.tanh(linear(np.append(reset * h, u), w, "candidate"))
    return code_then_mlp(w, h, query)


def tokens(w: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray, query: np.ndarray) -> np.ndarray:
    pairs = np.column_stack([np.vstack([x, query]), np.append(y, 0)])
    return linear(pairs, w, "embedding")


def linear_attention(w: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray, query: np.ndarray) -> float:
    E = tokens(w, x, y, query)
    for layer in range(2):
        W = {name: w[f"blocks.blocks.{layer}.{name}"] for name in ("W_q", "W_k", "W_v", "W_P", "W_1", "W_2")}
        E = E + sum(
            (E @ W["W_q"][h]) @ (E @ W["W_k"][h]).T @ (E @ W["W_v"][h]) @ W["W_P"][h] for h in range(len(W["W_q"]))
        )
        E = E + gelu(E @ W["W_1"]) @ W["W_2"]
    return linear(E[-1], w, "readout")[0]


def gated_attention(w: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray, query: np.ndarray) -> float:
    """As a sum over all earlier tokens, each with the product of the gates after it: no state."""
    X = tokens(w, x, y, query)
    for layer in range(2):
        at = f"blocks.{layer}"
        h = layer_norm(X, w, f"{at}.norm")
        q, k, v, g = (linear(h, w, f"{at}.{n}").reshape(len(X), 4, 4) for n in ("query", "key", "value", "gate"))
        kept = sigmoid(g) ** (1 / 16)
        out = np.zeros_like(q)
        for t in range(len(X)):
            for s in range(t + 1):
                decay = np.prod(kept[s + 1 : t + 1], axis=0)
                out[t] += np.einsum("hk,hk,hk,hv->hv", q[t] / 2, decay, k[s], v[s])
        X = X + linear(layer_norm(out, w, f"{at}.head_norm").reshape(len(X), -1), w, f"{at}.output")
        X = X + feedforward(layer_norm(X, w, f"{at}.feedforward_norm"), w, f"{at}.feedforward")
    return linear(layer_norm(X[-1], w, "final_norm"), w, "readout")[0]


def perceiver(w: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray, query: np.ndarray) -> float:
    T, slots = feedforward(np.column_stack([x, y]), w, "embedding"), w["slots"]

    def attend(name: str, asking: np.ndarray, told: np.ndarray) -> np.ndarray:
        heads = []
        for h in range(4):
            part = slice(4 * h, 4 * h + 4)
            q, k, v = (linear(rows, w, f"{name}.{n}")[:, part] for n, rows in
                       (("query", asking), ("key", told), ("value", told)))  # fmt: skip
            heads.append(softmax(q @ k.T / 2) @ v)
        return linear(np.concatenate(heads, axis=1), w, f"{name}.output")

    for layer in range(2):
        at = f"blocks.{layer}"
        norm = lambda X, i: layer_norm(X, w, f"{at}.norms.{i}")  # noqa: B023, E731
        slots = slots + attend(f"{at}.cross", norm(slots, 0), norm(T, 1))
        slots = slots + attend(f"{at}.own", norm(slots, 2), norm(slots, 2))
        slots = slots + feedforward(norm(slots, 3), w, f"{at}.feedforward")
    z = linear(layer_norm(slots.mean(0), w, "final_norm"), w, "latent")
    return linear(gelu(np.einsum("m,mhd->hd", z, w["theta"]) @ query), w, "readout")[0]


NUMPY = {
    "deep-set": deep_set,
    "recurrent": recurrent,
    "linear-attention": linear_attention,
    "gated-attention": gated_attention,
    "perceiver": perceiver,
}


@pytest.mark.parametrize("name", OURS)
def test_predictions_agree_with_numpy(name: str) -> None:
    config = smoke(name)
    model = build_model(config, key=jax.random.key(0))
    weights = {path: array.astype(float) for path, array in named_arrays(model).items()}
    inputs = episode(config)
    found = model(*map(jnp.asarray, inputs))
    expected = NUMPY[name](weights, *(array.astype(float) for array in inputs))
    assert float(found.y) == pytest.approx(expected, rel=1e-4, abs=1e-5)
    order = np.random.default_rng(1).permutation(len(inputs[1]))
    shuffled = model(*map(jnp.asarray, (inputs[0][order], inputs[1][order], inputs[2]))).y
    invariant = name in SETS or name == "linear-attention"
    assert np.isclose(shuffled, found.y, rtol=1e-4, atol=1e-5) == invariant


@pytest.mark.parametrize("name", OURS)
def test_they_pass_the_checks_of_a_custom_model(name: str) -> None:
    check_custom(smoke(name))


def test_the_docs_count_the_parameters() -> None:
    text = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    printed = dict(re.findall(r"^\| `([\w-]+)` \|.*\| ([\d,]+) \|$", text, re.MULTILINE))
    expected = {}
    for name in BASELINES:
        shapes = jax.eval_shape(lambda name=name: build_model(preset_config("paper", name), key=jax.random.key(0)))
        expected[name] = f"{count_parameters(jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes)):,}"
    assert printed == expected


def test_a_short_name_trains_and_resumes(tmp_path: Path) -> None:
    few = ["--set", "optimizer.num_steps=4", "measure.snapshots=1", "measure.episodes=16"]
    train = ["train", "--model", "deep-set", "--preset", "smoke", *few, "--out", str(tmp_path / "run")]
    assert main([*train, "--stop-at", "2"]) == 0
    assert BASELINES["deep-set"] in (tmp_path / "run" / "config.toml").read_text()
    assert main(train) == 0


def test_options() -> None:
    assert default_model("perceiver") == CustomModelConfig(BASELINES["perceiver"])
    config = override(Config(), {"model": {"kind": "perceiver", "options": {"num_slots": 3}}})
    assert build_model(config, key=jax.random.key(0)).slots.shape == (3, 64)
    for option, words in ({"num_slot": 3}, "num_slots"), ({"num_heads": 3}, "divide"), ({"embed_dim": 0}, "embed_dim"):
        bad = replace(config, model=CustomModelConfig(BASELINES["perceiver"], tuple(option.items())))
        with pytest.raises(InputError, match=words):
            check_custom(bad)
    with pytest.raises(InputError, match="deep-set"):
        default_model("deepset")


KIND = "recombine.model.architecture.hypernetwork:Hypernetwork"
BASE = preset_config("smoke", "hypertransformer")


def config_with(**options):
    return override(BASE, {"model": {"kind": KIND, "options": options}})


def test_the_start_is_improved_on_the_context() -> None:
    config = config_with(inference_steps=2, latent_dim=5, hidden_dim=8)
    check_custom(config)
    model = build_model(config, key=jax.random.key(0))
    assert isinstance(model, Hypernetwork)
    _, episodes = sample_split(0, "train", config_teacher(config), config.task.support, 12, 2)
    one, other = (model(episodes.context_x[i], episodes.context_y[i], episodes.query_x[0]) for i in range(2))
    expected = model.infer(model.start, episodes.context_x[0], episodes.context_y[0])
    np.testing.assert_allclose(one.trace.latent, expected, rtol=1e-6)
    np.testing.assert_allclose(one.y, model.execute(expected, episodes.query_x[0]), rtol=1e-6)
    assert one.trace.latent is not None
    assert not np.allclose(one.trace.latent, other.trace.latent, atol=1e-3)

    def fit(z: jax.Array) -> float:
        labels = jax.vmap(model.execute, in_axes=(None, 0))(z, episodes.context_x[0])
        return float(jnp.sum((labels - episodes.context_y[0]) ** 2))

    assert fit(one.trace.latent) < fit(model.start)


def test_it_has_steps_unless_told_otherwise() -> None:
    model = build_model(config_with(), key=jax.random.key(0))
    assert model.log_damping.shape == (3,)


@pytest.mark.parametrize("options", [{"embed_dim": 8}, {"inference_steps": 0}, {"hidden_dim": 0}])
def test_bad_options(options: dict) -> None:
    config = config_with(**options)
    assert isinstance(config.model, CustomModelConfig)
    with pytest.raises(InputError, match=next(iter(options))):
        build_model(config, key=jax.random.key(0))


MODEL = build_model(preset_config("smoke", "hypertransformer"), key=jax.random.key(0))


def test_names_are_paths_in_the_model() -> None:
    weights = named_arrays(MODEL)
    assert {"theta", "latent.weight", "trunk.blocks.1.attention.query.weight"} <= set(weights)
    assert {"trunk.position_biases.0.table", "trunk.final_norm.bias"} <= set(weights)


def test_arrays_that_do_not_fit() -> None:
    weights = named_arrays(MODEL)
    bad = {
        "differ in the parameter theta": {name: w for name, w in weights.items() if name != "theta"},
        "differ in the parameter extra": {**weights, "extra": np.zeros(3, np.float32)},
        r"theta is float32\[1, 2\]": {**weights, "theta": np.zeros((1, 2), np.float32)},
        "theta is float64": {**weights, "theta": weights["theta"].astype(np.float64)},
    }
    for message, content in bad.items():
        with pytest.raises(InputError, match=message):
            replace_arrays(MODEL, content, "a file")


@pytest.mark.parametrize("name", ["transformer", "hypertransformer", *BASELINES])
def test_vector_labels(name: str) -> None:
    """Every model predicts a vector that depends on every output of the context, and not on the query's own label."""
    config = override(smoke(name), {"task": {"output_dim": 3}})
    if name in BASELINES:
        check_custom(config)
    built = build_model(config, key=jax.random.key(0))
    _, episodes = sample_split(0, "in_dist", config_teacher(config), config.task.support, 8, 1)
    predicted = np.asarray(predict(built, episodes))
    assert predicted.shape == (1, 3)
    unseen = replace(episodes, query_y=episodes.query_y + 1)
    np.testing.assert_array_equal(predict(built, unseen), predicted)
    for output in range(3):
        moved = replace(episodes, context_y=episodes.context_y.at[..., output].add(0.5))
        assert np.abs(predict(built, moved) - predicted).max() > 1e-6


def test_the_construction_of_vector_labels() -> None:
    """Linear attention that starts from the construction computes A σ(Σ_m z_m θ_m x), as the teacher does."""
    options = {"given_latent": True, "embed_dim": 32, "num_heads": 8}
    task = {"output_dim": 3, "unit_norm": False, "input_dim": 6}
    config = override(smoke("linear-attention"), {"model": {"options": options}, "task": task})
    teacher = config_teacher(config)
    built = from_construction(build_model(config, key=jax.random.key(0)), teacher.theta, teacher.a)
    _, episodes = sample_split(0, "ood", teacher, config.task.support, 8, 10)
    np.testing.assert_allclose(predict(built, episodes), episodes.query_y, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["bottleneck", "hypernetwork", "perceiver"])
def test_the_latent_has_a_number_for_each_module(name: str) -> None:
    config = override(smoke(name), {"task": {"support": "2-hot:8"}})
    for changes, size in (({}, 8), ({"model": {"options": {"latent_dim": 5}}}, 5)):
        trace = build_model(override(config, changes), key=jax.random.key(0))(*map(jnp.asarray, episode(config))).trace
        assert trace.latent is not None
        assert trace.latent.shape == (size,)
