"""The probe compared with scikit-learn on a model's own trace, and scores by mask with a sum over episodes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

from recombine.config.preset import preset_config
from recombine.config.schema import ComputeConfig
from recombine.measure.context_probe import score_token_probe, token_moments
from recombine.measure.predict import forward
from recombine.measure.probe import fit_probe, score_probe
from recombine.measure.r2 import score, score_by_mask
from recombine.model.build import build_model
from recombine.model.forward import PLAIN
from recombine.model.interface import BatchOutput, Model, Output, Trace
from recombine.stream import Stream
from recombine.task.episode import Episode
from recombine.task.sample import sample_masks
from recombine.task.teacher import config_teacher


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
