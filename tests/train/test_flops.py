"""The count of operations agrees with XLA's own, up to the operations that it leaves out."""

from typing import Any

import equinox as eqx
import jax
import pytest

from recombine.config.model import ModelKind
from recombine.config.preset import preset_config
from recombine.config.schema import Config
from recombine.config.toml import override
from recombine.task.episode import sample_episodes
from recombine.task.sample import mask_rows
from recombine.task.teacher import config_teacher
from recombine.train.flops import forward_flops, step_flops
from recombine.train.step import init_state, query_loss

pytestmark = pytest.mark.slow


def xla_flops(config: Config) -> tuple[float, float]:
    """XLA's count of operations, for the loss of one batch and for its gradient."""
    key, masks = jax.random.key(0), mask_rows(config.task.support.masks).rows
    size = (config.task.episode_length, config.optimizer.batch_size)
    arrays, rest = eqx.partition(eqx.filter_eval_shape(init_state, config).model, lambda leaf: hasattr(leaf, "shape"))
    episodes = jax.eval_shape(lambda: sample_episodes(key, config_teacher(config), masks, *size, 0))

    def loss(arrays: Any, episodes: Any) -> jax.Array:
        return query_loss(eqx.combine(arrays, rest), episodes, config.compute)

    programs = (jax.jit(function).lower(arrays, episodes).compile() for function in (loss, jax.grad(loss)))
    forward, gradient = (program.cost_analysis()["flops"] for program in programs)
    return forward, gradient


CASES = [("transformer", 2, 128), ("transformer", 3, 16), ("hypertransformer", 1, 16), ("hypertransformer", 2, 32)]


@pytest.mark.parametrize(("kind", "layers", "length"), CASES)
def test_against_xla(kind: ModelKind, layers: int, length: int) -> None:
    changes = {"model": {"num_layers": layers}, "task": {"episode_length": length}, "optimizer": {"batch_size": 16}}
    config = override(preset_config("paper", kind), changes)
    forward, gradient = xla_flops(config)
    assert forward_flops(config) == pytest.approx(forward, rel=0.07)
    assert step_flops(config) == pytest.approx(gradient, rel=0.07)


def test_the_batch_is_counted_once_for_each_episode() -> None:
    """Doubling the batch doubles the work, except for products of weights with weights."""
    config = preset_config("paper", "transformer")
    twice = override(config, {"optimizer": {"batch_size": 256}})
    assert forward_flops(twice) == pytest.approx(2 * forward_flops(config), rel=0.01)
    assert forward_flops(twice) < 2 * forward_flops(config)
