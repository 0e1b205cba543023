"""The fast path has the same predictions and gradients as the plain one."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recombine.config.preset import preset_config
from recombine.config.schema import ComputeConfig
from recombine.config.toml import override
from recombine.model.build import build_model
from recombine.model.forward import predict_batch
from recombine.model.trunk import TrunkModel
from recombine.task.sample import sample_split
from recombine.task.teacher import config_teacher
from recombine.train.step import query_loss

KINDS = ("transformer", "hypertransformer")
predict = eqx.filter_jit(predict_batch)
FAST, PLAIN = ComputeConfig(path="fast"), ComputeConfig(path="plain")

# Each number of layers, with another number of heads and another of the open readings.
VARIANTS = [
    {"num_layers": 1, "num_heads": 2},
    {"num_layers": 2, "num_heads": 4},
    {"num_layers": 3, "num_heads": 1, "position_bias": "shared"},
    {"num_layers": 4, "num_heads": 8, "final_norm": False},
    {"num_layers": 5, "num_heads": 2, "causal": True},
    {"num_layers": 6, "num_heads": 16, "scale_scores": False},
    {"num_layers": 1, "causal": True, "position_bias": "none"},
    {"num_layers": 2, "causal": True, "position_bias": "none", "ffn_factor": 1},
    {"num_layers": 2, "position_buckets": "one_directional"},
]


def make(kind: str, model: dict, length: int = 9, output_dim: int = 1) -> tuple:
    """A model with every parameter away from its initial value (biases and norms too), and episodes."""
    config = override(
        preset_config("smoke", kind), {"model": model, "task": {"episode_length": length, "output_dim": output_dim}}
    )
    built = build_model(config, key=jax.random.key(0))
    keys = iter(jax.random.split(jax.random.key(1), 500))
    moved = jax.tree.map(lambda leaf: leaf + 0.1 * jax.random.normal(next(keys), leaf.shape), built)
    _, episodes = sample_split(0, "train", config_teacher(config), config.task.support, length, 16)
    return moved, episodes


def gradient_error(one, other) -> float:
    """The relative distance of two gradients, as vectors."""
    a, b = (np.concatenate([np.ravel(np.asarray(leaf, float)) for leaf in jax.tree.leaves(g)]) for g in (one, other))
    return float(np.linalg.norm(a - b) / np.linalg.norm(a))


# Compiling is what takes the time; the rest is `slow`.
IN_CI = [("transformer", VARIANTS[0]), ("transformer", VARIANTS[1]), ("transformer", VARIANTS[2])]
IN_CI += [("hypertransformer", VARIANTS[1]), ("hypertransformer", VARIANTS[6])]
CASES = [
    pytest.param(kind, model, marks=() if (kind, model) in IN_CI else pytest.mark.slow, id=f"{kind}-{model}")
    for kind in KINDS
    for model in VARIANTS
]
CASES.append(pytest.param("hypertransformer", {"num_layers": 1, "inference_steps": 2}, id="explicit inference"))


CASES = [pytest.param(*case.values, 1, marks=case.marks, id=case.id) for case in CASES]
CASES += [
    pytest.param("transformer", {"num_layers": 2}, 3, id="transformer, three outputs"),
    pytest.param("hypertransformer", {"num_layers": 1, "inference_steps": 1}, 3, id="explicit, three outputs"),
]


@pytest.mark.parametrize(("kind", "model", "output_dim"), CASES)
def test_same_loss_and_gradient(kind: str, model: dict, output_dim: int) -> None:
    built, episodes = make(kind, model, output_dim=output_dim)
    loss_and_gradient = eqx.filter_jit(eqx.filter_value_and_grad(query_loss))
    plain, plain_gradient = loss_and_gradient(built, episodes, PLAIN)
    fast, fast_gradient = loss_and_gradient(built, episodes, FAST)
    np.testing.assert_allclose(fast, plain, rtol=1e-5)
    assert gradient_error(plain_gradient, fast_gradient) < 1e-5


@pytest.mark.parametrize(
    "num_layers", [3, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 2))]
)  # of three, one is neither the first nor the last
def test_the_same_weights_are_dropped(num_layers: int) -> None:
    built, episodes = make("hypertransformer", {"num_layers": num_layers, "dropout": 0.4})
    keys = jax.random.split(jax.random.key(5), len(episodes.query_y))
    loss_and_gradient = eqx.filter_jit(eqx.filter_value_and_grad(query_loss))
    plain, plain_gradient = loss_and_gradient(built, episodes, PLAIN, keys)
    fast, fast_gradient = loss_and_gradient(built, episodes, FAST, keys)
    np.testing.assert_allclose(fast, plain, rtol=1e-5)
    assert gradient_error(plain_gradient, fast_gradient) < 1e-5
    others, _ = loss_and_gradient(built, episodes, FAST, jax.random.split(jax.random.key(6), 16))
    assert abs(others - fast) > 1e-4


@pytest.mark.parametrize("kind", ["transformer", pytest.param("hypertransformer", marks=pytest.mark.slow)])
def test_every_parameter_has_its_gradient(kind: str) -> None:
    """Compared in float64, parameter by parameter, so that no small gradient hides behind a large one."""
    with jax.enable_x64(True):
        gradient = eqx.filter_jit(eqx.filter_grad(query_loss))
        built, episodes = make(kind, {"num_layers": 3})
        widen = lambda tree: jax.tree.map(lambda a: a.astype(float) if eqx.is_inexact_array(a) else a, tree)  # noqa: E731
        built, episodes = widen(built), widen(episodes)
        plain, fast = (gradient(built, episodes, compute) for compute in (PLAIN, FAST))
        scale = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(plain))
        for path, expected in jax.tree.leaves_with_path(plain):
            found = dict(jax.tree.leaves_with_path(fast))[path]
            np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-10 * scale, err_msg=str(path))


@pytest.mark.parametrize(
    "kind", [KINDS[1], *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS if kind != KINDS[1])]
)
def test_same_predictions_at_the_papers_sizes(kind: str) -> None:
    config = preset_config("paper", kind)
    model = eqx.filter_jit(build_model)(config, key=jax.random.key(2))
    _, e = sample_split(0, "ood", config_teacher(config), config.task.support, 32, 8)
    fast, plain = (predict(model, e.context_x, e.context_y, e.query_x, compute) for compute in (FAST, PLAIN))
    np.testing.assert_allclose(fast, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_large_scores_do_not_overflow() -> None:
    built, episodes = make("transformer", {})
    big = eqx.tree_at(lambda m: m.trunk.blocks[0].attention.query.weight, built, replace_fn=lambda w: 1000 * w)
    loss, gradient = eqx.filter_value_and_grad(query_loss)(big, episodes, FAST)
    assert np.isfinite(loss)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_a_model_of_another_make_takes_the_plain_path() -> None:
    built, e = make("transformer", {})
    other = eqx.filter_jit(lambda *inputs: built(*inputs))
    assert not isinstance(other, TrunkModel)
    fast, plain = (predict(model, e.context_x, e.context_y, e.query_x, FAST) for model in (other, built))
    np.testing.assert_allclose(fast, plain, rtol=1e-4, atol=1e-5)
