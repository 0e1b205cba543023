"""Predictions in chunks, ridge regression and snapshots, against NumPy."""

import json
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file
from sklearn.linear_model import Ridge as SklearnRidge

from recombine.cli.main import main
from recombine.config.preset import preset_config
from recombine.config.toml import override
from recombine.measure import predict as predict_module
from recombine.measure.predict import predict
from recombine.measure.ridge import fit_ridge
from recombine.model.build import build_model
from recombine.run.training import execute_run
from recombine.task.sample import sample_split
from recombine.task.teacher import seed_teacher
from tests.paper import numpy_models


def test_chunks_do_not_change_the_predictions() -> None:
    """Many chunks, with and without a remainder: each episode gets its own prediction, in order."""
    config = preset_config("smoke", "transformer")
    model = build_model(config, key=jax.random.key(0))
    alone = eqx.filter_jit(model)
    teacher = seed_teacher(0, config.task.support, 4, 4)
    for count in (541, 500):  # a prime number, and one with divisors
        _, episodes = sample_split(0, "in_dist", teacher, config.task.support, 8, count)
        predicted = np.asarray(predict(model, episodes))
        assert predicted.shape == (count,)
        for i in (0, 1, 249, 250, 255, 256, count - 1):
            one = alone(episodes.context_x[i], episodes.context_y[i], episodes.query_x[i]).y
            np.testing.assert_allclose(predicted[i], one, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("total", [1, 5, 6, 7])
def test_chunks_without_a_remainder(total: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function is traced once: what is left over is no second program beside the first."""
    monkeypatch.setattr(predict_module, "CHUNK", 3)
    shapes = []

    def twice(pair: tuple[jax.Array, jax.Array]) -> jax.Array:
        shapes.append(pair[0].shape)
        return 2 * pair[0].sum() + pair[1]

    tree = (jnp.arange(4.0 * total).reshape(total, 4), jnp.arange(total))
    found = predict_module.map_in_chunks(twice, tree)
    np.testing.assert_array_equal(found, 2 * np.arange(4.0 * total).reshape(total, 4).sum(axis=1) + np.arange(total))
    assert set(shapes) == {(4,)}
    assert len(shapes) == 1


RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 6))
Y = RNG.normal(size=(40, 2))
DUPLICATED = np.column_stack([X, X[:, :2]])
CASES = {
    "plain": X,
    "fewer samples than features": X[:4],
    "rank deficient": DUPLICATED,
    "all zero": np.zeros_like(X),
    "a constant column": np.column_stack([X, np.full(40, 7.0)]),
    "badly scaled": X * np.array([1e-6, 1e-3, 1.0, 1e3, 1e5, 1e6]),
    "far from the origin": X + 1e4,
    "one sample": X[:1],
}


@pytest.mark.parametrize("strength", [1.0, 1e-3, 100.0])
@pytest.mark.parametrize("case", CASES)
def test_agrees_with_a_float64_reference(case: str, strength: float) -> None:
    x = CASES[case]
    y = Y[: len(x)]
    with jax.enable_x64(True):
        fit = fit_ridge(jnp.asarray(x), jnp.asarray(y), strength)
        predicted = np.asarray(fit(jnp.asarray(x)))
    expected = SklearnRidge(alpha=strength, solver="svd").fit(x, y)
    np.testing.assert_allclose(predicted, expected.predict(x), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(fit.weights, expected.coef_.T, rtol=1e-6, atol=1e-6)


def test_float32_is_good_enough_on_kind_data() -> None:
    fit = fit_ridge(jnp.asarray(X, jnp.float32), jnp.asarray(Y, jnp.float32), 1.0)
    expected = SklearnRidge(alpha=1.0).fit(X, Y)
    np.testing.assert_allclose(fit.weights, expected.coef_.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(fit.intercept, expected.intercept_, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["transformer", "hypertransformer"])
def test_metrics_agree_with_numpy(kind: str, tmp_path: Path) -> None:
    changes = {"optimizer": {"num_steps": 6}, "measure": {"episodes": 20, "snapshots": 1}}
    config = override(preset_config("smoke", kind), changes)
    for _ in execute_run(config, tmp_path / "run"):
        pass
    row = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    state = load_file(max((tmp_path / "run" / "checkpoints").glob("step-*")) / "state.safetensors")
    weights = {name.removeprefix("model."): value for name, value in state.items() if name.startswith("model.")}
    for split in ("in_dist", "ood", "control", "control_modules"):
        file = tmp_path / f"{split}.npz"
        sizes = ["--episodes", "20", "--length", "8", "--input-dim", "4", "--hidden-dim", "4"]
        assert main(["task", "sample", "--split", split, *sizes, "--out", str(file)]) == 0
        data = np.load(file)
        model = getattr(numpy_models, kind)
        options = {"heads": 4, "layers": 2, "causal": False, "scaled": True}
        y = [
            model(weights, x, labels, query, **options)[0]
            for x, labels, query in zip(data["context_x"], data["context_y"], data["query_x"], strict=True)
        ]
        error = np.sum((data["query_y"] - y) ** 2)
        spread = np.sum((data["query_y"] - data["context_y"].astype(float).mean(axis=1)) ** 2)
        assert row[split]["r2"] == pytest.approx(1 - error / spread, abs=1e-5)
        assert row[split]["mse"] == pytest.approx(error / 20, abs=1e-5)
