"""Random streams and numerics: each stream its own numbers, and no global setting is changed."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recombine.config.preset import preset_config
from recombine.config.toml import override
from recombine.errors import InputError
from recombine.model.build import build_model
from recombine.stream import Stream, stream_key
from recombine.task.sample import sample_split
from recombine.task.teacher import seed_teacher
from recombine.train.loop import run_steps
from recombine.train.step import config_tasks, init_state


def test_no_two_uses_share_a_key() -> None:
    """Every (seed, stream, step), and every key split or folded from it, is unique."""
    keys = [
        stream_key(seed, stream, step)
        for seed, stream, step in itertools.product((0, 1, 2, 2**31, 2**32 - 1), Stream, (0, 1, 2, 8, 99_999))
    ]
    children = [child for key in keys for child in jax.random.split(key, 3)]
    data = {tuple(np.asarray(jax.random.key_data(key)).tolist()) for key in keys + children}
    assert len(data) == len(keys) + len(children)


def test_a_key_is_a_pure_function_of_seed_stream_and_step() -> None:
    jitted = jax.jit(lambda step: jax.random.key_data(stream_key(7, Stream.train, step)))
    for step in (0, 3, 12345):
        assert np.array_equal(jitted(step), jax.random.key_data(stream_key(7, Stream.train, step)))


def test_wide_floats_do_not_change_what_is_drawn() -> None:
    """The same (seed, stream, step) gives the same bits of float32 with and without 64-bit JAX."""

    def draw():
        config = preset_config("smoke", "hypertransformer")
        config = override(config, {"model": {"base_weights": True}})
        teacher = seed_teacher(0, config.task.support, 4, 4)
        batches = [sample_split(0, split, teacher, config.task.support, 5, 3) for split in ("in_dist", "control")]
        return teacher, batches, build_model(config, key=stream_key(0, Stream.init))

    narrow = jax.tree.leaves(draw())
    with jax.enable_x64(True):
        wide = jax.tree.leaves(draw())
    for a, b in zip(narrow, wide, strict=True):
        assert a.dtype == b.dtype
        if a.dtype == np.float32:  # sums may be formed in another order, draws may not
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(a, b)


def test_seeds_can_be_traced() -> None:
    """One compiled program can run many seeds."""
    keys = jax.vmap(lambda seed: jax.random.key_data(stream_key(seed, Stream.train, 3)))(np.arange(4, dtype=np.uint32))
    for seed in range(4):
        np.testing.assert_array_equal(keys[seed], jax.random.key_data(stream_key(seed, Stream.train, 3)))


def test_stream_numbers_are_fixed() -> None:
    """Every stored run depends on these numbers: the list may grow, but its entries never change."""
    names = ["teacher", "init", "train", "in_dist", "ood", "control", "probe", "select", "reference"]
    names += ["control_modules", "active_modules", "modules", "intervene", "explore", "trained_tasks", "novel"]
    names += ["dropout", "dream"]
    assert [stream.name for stream in sorted(Stream)] == names
    assert [int(stream) for stream in Stream] == list(range(len(names)))


@pytest.mark.parametrize("seed", [-1, 2**32, 2**63, True])
def test_bad_seeds(seed) -> None:
    with pytest.raises(InputError, match=r"seed = .*an integer from 0 to 4294967295"):
        stream_key(seed, Stream.train)


def products(jaxpr: Any) -> Iterator[Any]:
    """The matrix products in a program, including those in its loops, branches and derivatives."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield equation
        for value in jax.tree.leaves(equation.params, is_leaf=lambda leaf: hasattr(leaf, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from products(inner)


@pytest.mark.parametrize("kind", ["transformer", "hypertransformer"])
@pytest.mark.parametrize("path", ["fast", "plain"])
def test_a_float32_product_is_one_wherever_it_is_computed(kind: str, path: str) -> None:
    """Every product in a training step (labels, passes, gradients) is exact, also on an accelerator."""
    config = override(preset_config("smoke", kind), {"compute": {"path": path}})
    dynamic, static = eqx.partition(init_state(config), eqx.is_array)

    def step(dynamic: Any) -> Any:
        state, tasks = eqx.combine(dynamic, static), config_tasks(config)
        done = run_steps(config, jnp.uint32(0), tasks, state, jnp.int32(0), jnp.int32(1))
        return eqx.filter(done, eqx.is_array)

    found = list(products(jax.make_jaxpr(step)(dynamic).jaxpr))
    assert len(found) > 20
    assert {str(equation.params["precision"]) for equation in found} == {
        str((jax.lax.Precision.HIGHEST, jax.lax.Precision.HIGHEST))
    }


def test_a_seed_is_the_same_teacher_whatever_the_environment_says() -> None:
    code = (
        "from recombine.config.preset import preset_config; from recombine.task.teacher import seed_teacher\n"
        "support = preset_config('smoke', 'transformer').task.support\n"
        "print(seed_teacher(0, support, 4, 4).theta.tolist())"
    )
    env = os.environ | {"JAX_THREEFRY_PARTITIONABLE": "0", "JAX_DEFAULT_MATMUL_PRECISION": "bfloat16"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120, check=True
    )
    here = seed_teacher(0, preset_config("smoke", "transformer").task.support, 4, 4).theta.tolist()
    np.testing.assert_array_equal(json.loads(done.stdout), here)


def test_nothing_is_set_for_the_whole_process() -> None:
    code = (
        "import jax; before = (jax.config.jax_default_matmul_precision, jax.config.jax_threefry_partitionable)\n"
        "import recombine.run.training, recombine.measure.scorecard\n"
        "from recombine.config.preset import preset_config; from recombine.task.teacher import config_teacher\n"
        "config_teacher(preset_config('smoke', 'transformer'))\n"
        "assert before == (jax.config.jax_default_matmul_precision, jax.config.jax_threefry_partitionable)"
    )
    subprocess.run([sys.executable, "-c", code], timeout=120, check=True)
