"""Probes, predictions in chunks, ridge regression and snapshots, against NumPy."""

import json
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file
from sklearn.linear_model import Ridge
from sklearn.linear_model import Ridge as SklearnRidge
from sklearn.metrics import r2_score

from recombine.cli.main import main
from recombine.config.preset import preset_config
from recombine.config.schema import ComputeConfig
from recombine.config.toml import override
from recombine.measure import predict as predict_module
from recombine.measure.context_probe import score_token_probe, token_moments
from recombine.measure.predict import forward, predict
from recombine.measure.probe import fit_probe, score_probe
from recombine.measure.r2 import score, score_by_mask
from recombine.measure.ridge import fit_ridge
from recombine.model.build import build_model
from recombine.model.forward import PLAIN
from recombine.model.interface import BatchOutput, Model, Output, Trace
from recombine.run.training import execute_run
from recombine.stream import Stream
from recombine.task.episode import Episode
from recombine.task.sample import sample_masks, sample_split
from recombine.task.teacher import config_teacher, seed_teacher
from tests.paper import numpy_models


def read_two_sets(kind: str, compute: ComputeConfig):
    config = preset_config("smoke", kind)
    model = build_model(config, key=jax.random.key(0))
    teacher, support = config_teacher(config), config.task.support
    fitted_on = sample_masks(0, Stream.probe, teacher, support.masks, 8, 700)
    scored_on = sample_masks(0, Stream.ood, teacher, support.held_out, 8, 300)
    return model, fitted_on, scored_on, forward(model, fitted_on, compute), forward(model, scored_on, compute)


@eqx.filter_jit
def trace_of(model: Model, episodes: Episode) -> Trace:
    return jax.vmap(model)(episodes.context_x, episodes.context_y, episodes.query_x).trace


@pytest.mark.parametrize("kind", ["transformer", "hypertransformer"])
def test_agrees_with_scikit_learn(kind: str) -> None:
    model, fitted_on, scored_on, *_ = read_two_sets(kind, PLAIN)
    traces = [trace_of(model, episodes) for episodes in (fitted_on, scored_on)]
    _, _, _, fitted, scored = read_two_sets(kind, ComputeConfig(path="fast"))
    probe = fit_probe(fitted, fitted_on.latent)
    assert probe is not None
    found = score_probe(probe, scored, scored_on.latent)
    assert len(found.residual) == 3
    for point in range(3):
        x, x_new = (np.asarray(trace.residual[:, point, -1], np.float64) for trace in traces)
        expected = Ridge(alpha=1.0).fit(x, np.asarray(fitted_on.latent, np.float64)).predict(x_new)
        r2 = r2_score(scored_on.latent, expected, multioutput="variance_weighted")
        assert found.residual[point] == pytest.approx(r2, abs=1e-5)
    if kind == "transformer":
        assert found.latent is None
    else:
        x, x_new = (np.asarray(trace.latent, np.float64) for trace in traces)
        expected = Ridge(alpha=1.0).fit(x, np.asarray(fitted_on.latent, np.float64)).predict(x_new)
        r2 = r2_score(scored_on.latent, expected, multioutput="variance_weighted")
        assert found.latent == pytest.approx(r2, abs=1e-5)


@pytest.mark.parametrize("kind", ["transformer", "hypertransformer"])
def test_reading_the_contexts_tokens_agrees_with_scikit_learn(kind: str) -> None:
    model, fitted_on, scored_on, *_ = read_two_sets(kind, PLAIN)
    moments = [token_moments(model, episodes) for episodes in (fitted_on, scored_on)]
    found = score_token_probe(*moments, latent_dim=6)
    traces = [trace_of(model, episodes) for episodes in (fitted_on, scored_on)]
    z, z_new = (np.asarray(e.latent, np.float64) for e in (fitted_on, scored_on))
    for point in range(3):
        x, x_new = (np.asarray(trace.residual[:, point, :-1], np.float64) for trace in traces)
        expected = Ridge(alpha=1.0).fit(x.mean(axis=1), z).predict(x_new.mean(axis=1))
        r2 = r2_score(z_new, expected, multioutput="variance_weighted")
        assert found.mean[point] == pytest.approx(r2, abs=1e-4)
        flat, flat_new = x.reshape(-1, x.shape[-1]), x_new.reshape(-1, x.shape[-1])
        expected = Ridge(alpha=1.0).fit(flat, np.repeat(z, 7, axis=0)).predict(flat_new)
        r2 = r2_score(np.repeat(z_new, 7, axis=0), expected, multioutput="variance_weighted")
        assert found.each[point] == pytest.approx(r2, abs=1e-4)


def test_a_latent_that_is_there_is_found() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(400, 3))
    hidden = jnp.asarray(np.stack([rng.normal(size=(400, 8)), z @ rng.normal(size=(3, 8))], axis=1), jnp.float32)
    probe = fit_probe(BatchOutput(jnp.zeros(400), hidden, None), jnp.asarray(z, jnp.float32))
    assert probe is not None
    noise, found = score_probe(probe, BatchOutput(jnp.zeros(400), hidden, None), jnp.asarray(z, jnp.float32)).residual
    assert noise < 0.1
    assert found > 0.999


def test_a_model_without_a_trace_has_no_probe() -> None:
    _, fitted_on, *_ = read_two_sets("transformer", PLAIN)
    assert fit_probe(forward(lambda x, y, q: Output(y.mean(), Trace()), fitted_on), fitted_on.latent) is None


def test_scores_by_mask_pool_to_the_score() -> None:
    _, _, episodes, _, output = read_two_sets("transformer", PLAIN)
    config = preset_config("smoke", "transformer")
    masks = config.task.support.held_out
    by_mask = score_by_mask(output.y, episodes, masks)
    assert set(by_mask) == {"100100", "010010", "001001"}
    assert sum(entry.episodes for entry in by_mask.values()) == 300
    mse = sum(entry.episodes * entry.mse for entry in by_mask.values())
    spread = sum(entry.episodes * entry.spread for entry in by_mask.values())
    assert 1 - mse / spread == pytest.approx(score(output.y, episodes).r2, abs=1e-9)
    chosen = np.flatnonzero(np.asarray(episodes.mask_index) == 1)
    alone = score(np.asarray(output.y)[chosen], jax.tree.map(lambda leaf: leaf[chosen], episodes))
    assert by_mask["010010"].r2 == pytest.approx(alone.r2, abs=1e-9)
    assert score_by_mask(output.y[:0], jax.tree.map(lambda leaf: leaf[:0], episodes), masks) == {}


def test_a_single_task_has_no_r2() -> None:
    """A 1-hot mask has only one task. All its latents are equal, so there is no variance to explain."""
    rng = np.random.default_rng(0)
    output = BatchOutput(jnp.zeros(50), jnp.asarray(rng.normal(size=(50, 2, 8)), jnp.float32), None)
    probe = fit_probe(output, jnp.asarray(rng.normal(size=(50, 3)), jnp.float32))
    assert probe is not None
    assert score_probe(probe, output, jnp.ones((50, 3))).residual == (None, None)


def test_a_model_that_shows_only_its_latent_is_probed_there() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(300, 4)).astype(np.float32)
    output = BatchOutput(jnp.zeros(300), None, jnp.asarray(z @ rng.normal(size=(4, 5)) + 1, jnp.float32))
    probe = fit_probe(output, jnp.asarray(z))
    assert probe is not None
    found = score_probe(probe, output, jnp.asarray(z))
    assert found.residual == ()
    assert found.latent == pytest.approx(1, abs=1e-3), "a linear map of the latent"
    assert fit_probe(BatchOutput(jnp.zeros(300), None, None), jnp.asarray(z)) is None


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
