"""No prediction depends on the query's label: y_N is what the model is asked for (Section 2)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recombine.config.model import SEES_LABEL
from recombine.config.preset import preset_config
from recombine.config.toml import override
from recombine.measure.predict import predict
from recombine.measure.reference.baselines import make_references, predict_reference
from recombine.model.build import build_model
from recombine.model.forward import extra_pair
from recombine.task.sample import sample_split
from recombine.task.teacher import seed_teacher

CONFIG = preset_config("smoke", "transformer")
TEACHER = seed_teacher(0, CONFIG.task.support, 4, 4)
REFERENCES = make_references(0, TEACHER, CONFIG.task.support, 8)
EPISODES = sample_split(0, "in_dist", TEACHER, CONFIG.task.support, 8, 16)[1]


@pytest.mark.parametrize("kind", ["transformer", "hypertransformer"])
@pytest.mark.parametrize("label", [1e6, np.nan])
def test_models(kind, label: float) -> None:
    model = build_model(preset_config("smoke", kind), key=jax.random.key(0))
    changed = eqx.tree_at(lambda e: e.query_y, EPISODES, jnp.full_like(EPISODES.query_y, label))
    np.testing.assert_array_equal(predict(model, EPISODES), predict(model, changed))
    assert np.isfinite(predict(model, EPISODES)).all()


def test_the_printed_input_shows_the_label_and_says_so() -> None:
    """Taken literally, the paper's X contains (x_N, y_N). Such a model has another name, in which no other can be."""
    config = override(preset_config("smoke", "hypertransformer"), {"model": {"literal_input": True}})
    assert config.model.label == SEES_LABEL != "hypertransformer"
    model = build_model(config, key=jax.random.key(0))
    changed = eqx.tree_at(lambda e: e.query_y, EPISODES, EPISODES.query_y + 1)
    assert (np.abs(predict(model, EPISODES) - predict(model, changed)) > 1e-6).all()
    pair = np.concatenate([EPISODES.query_x, EPISODES.query_y[:, None]], axis=1)
    tokens = jax.vmap(model.tokens)(*EPISODES.shown(extra_pair(model)))
    np.testing.assert_array_equal(tokens[:, -2], pair)
    np.testing.assert_array_equal(tokens[:, -1], 0)
    usual = build_model(preset_config("smoke", "hypertransformer"), key=jax.random.key(0))
    np.testing.assert_array_equal(jnp.delete(tokens, -2, axis=1), jax.vmap(usual.tokens)(*EPISODES.shown()))


@pytest.mark.parametrize("name", REFERENCES)
def test_references(name: str) -> None:
    changed = eqx.tree_at(lambda e: e.query_y, EPISODES, jnp.full_like(EPISODES.query_y, np.nan))
    expected = predict_reference(REFERENCES[name], TEACHER, EPISODES, "in_dist")
    np.testing.assert_array_equal(predict_reference(REFERENCES[name], TEACHER, changed, "in_dist"), expected)
    assert np.isfinite(expected).all()
