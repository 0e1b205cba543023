"""What the order of the context does. Without a position bias: nothing. With T5's, which Appendix C.3 asks for, another
order gives another prediction; what holds instead is that only signed distances count: reversing the tokens and
mirroring the tables of biases together reverses the residual stream, and does nothing else.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recombine.config.preset import preset_config
from recombine.config.toml import override
from recombine.model.build import build_model
from recombine.model.trunk import Trunk
from recombine.task.sample import sample_split
from recombine.task.teacher import seed_teacher


def setting(kind, **model):
    config = override(preset_config("smoke", kind), {"model": model})
    teacher = seed_teacher(0, config.task.support, 4, 4)
    _, episodes = sample_split(0, "in_dist", teacher, config.task.support, 8, 1)
    episode = jax.tree.map(lambda leaf: leaf[0], episodes)
    return build_model(config, key=jax.random.key(0)), episode


ORDER = np.array([3, 0, 6, 1, 5, 2, 4])


@pytest.mark.parametrize("kind", ["transformer", "hypertransformer"])
def test_without_positions_the_order_is_irrelevant(kind) -> None:
    model, e = setting(kind, position_bias="none")
    output = model(e.context_x, e.context_y, e.query_x)
    permuted = model(e.context_x[ORDER], e.context_y[ORDER], e.query_x)
    np.testing.assert_allclose(output.y, permuted.y, rtol=1e-5)
    # And each token's stream moves with its pair.
    order = [*ORDER, len(ORDER)]
    np.testing.assert_allclose(output.trace.residual[:, order], permuted.trace.residual, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["transformer", "hypertransformer"])
def test_with_positions_it_is_not(kind) -> None:
    model, e = setting(kind)
    output = model(e.context_x, e.context_y, e.query_x)
    permuted = model(e.context_x[ORDER], e.context_y[ORDER], e.query_x)
    assert abs(output.y - permuted.y) > 1e-4


@pytest.mark.parametrize("kind", ["transformer", "hypertransformer"])
def test_pairs_stay_together(kind) -> None:
    """Permuting the labels alone gives another task, with or without positions."""
    model, e = setting(kind, position_bias="none")
    output = model(e.context_x, e.context_y, e.query_x)
    assert abs(output.y - model(e.context_x, e.context_y[ORDER], e.query_x).y) > 1e-5


@pytest.mark.parametrize("kind", ["transformer", "hypertransformer"])
def test_with_positions_only_signed_distances_count(kind) -> None:
    model, e = setting(kind)

    def mirror(table: np.ndarray) -> np.ndarray:
        earlier, later = table[:, :16], table[:, 16:]  # bucket 0 is the token itself
        return np.concatenate([earlier[:, :1], later[:, 1:], later[:, :1], earlier[:, 1:]], axis=1)

    def tables(trunk: Trunk) -> list:
        return [bias.table for bias in trunk.position_biases]

    mirrored = eqx.tree_at(
        tables, model.trunk, [jnp.asarray(mirror(np.asarray(table))) for table in tables(model.trunk)]
    )
    forward = backward = model.embed(e.context_x, e.context_y, e.query_x)
    backward = backward[::-1]
    for layer in range(len(model.trunk.blocks)):
        forward, _ = model.trunk.apply_block(layer, forward)
        backward, _ = mirrored.apply_block(layer, backward)
    np.testing.assert_allclose(forward, backward[::-1], rtol=1e-4, atol=1e-5)


def test_causal_attention_looks_back_only() -> None:
    model, e = setting("transformer", causal=True)
    output = model(e.context_x, e.context_y, e.query_x)
    assert (np.triu(np.asarray(output.trace.attention), 1) == 0).all()
    later = model(e.context_x.at[4].add(1.0), e.context_y, e.query_x)
    np.testing.assert_array_equal(output.trace.residual[:, :4], later.trace.residual[:, :4])
    assert (output.trace.residual[1:, 4:] != later.trace.residual[1:, 4:]).any()
