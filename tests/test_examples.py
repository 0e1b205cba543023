"""The one-file walk-through runs, fits a lecture, and its parts are those of the package."""

import importlib.util
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recombine.measure.latent.explicit_inference import improve_latent
from recombine.model.interface import Output
from recombine.support.support import paper_support
from recombine.task.teacher import HypernetworkTeacher

PATH = Path(__file__).parents[1] / "examples" / "one_file.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    specification = importlib.util.spec_from_file_location("one_file", PATH)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_it_is_short_and_hides_nothing() -> None:
    text = PATH.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    assert "import recombine" not in text
    assert "from recombine" not in text


def test_it_runs(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    example.main(3)
    assert capsys.readouterr().out.count("R²") == 2


def test_its_tasks_are_the_papers(example: ModuleType) -> None:
    teacher = HypernetworkTeacher(example.THETA, example.READOUT)
    x, y = example.sample_episode(jax.random.key(1), example.TRAINED)
    z = jnp.zeros(example.M).at[1].set(0.7).at[4].set(0.8)
    np.testing.assert_allclose(example.label(z, x), teacher.label(z, x), rtol=1e-4, atol=1e-6)
    assert y.shape == (example.N,)
    support = paper_support("connected+")
    for pairs, masks in ((example.TRAINED, support.masks), (example.HELD_OUT, support.held_out)):
        found = {tuple(int(m in pair) for m in range(6)) for pair in pairs.tolist()}
        assert found == set(masks)


def test_its_explicit_inference_is_the_scorecards(example: ModuleType) -> None:
    model = example.init_model(jax.random.key(2))
    x, y = example.sample_episode(jax.random.key(3), example.TRAINED)

    class Model:
        def __call__(self, context_x: jax.Array, context_y: jax.Array, query_x: jax.Array) -> Output:
            raise NotImplementedError

        def execute(self, z: jax.Array, x: jax.Array) -> jax.Array:
            return example.execute(model, z, x)

    expected = improve_latent(Model(), jnp.zeros(6), x, y, 3)[-1]
    np.testing.assert_allclose(example.infer_explicitly(model, jnp.zeros(6), x, y), expected, rtol=1e-3, atol=1e-4)
