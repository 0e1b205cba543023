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
from recombine.task.teacher import seed_teacher
from recombine.train.loop import run_steps
from recombine.train.step import config_tasks, init_state


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
