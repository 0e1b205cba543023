"""Task classes of the user's: the example of the docs, and classes that are refused before anything is trained."""

import json
import os
import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from recombine.cli.main import main
from recombine.config.task import TaskConfig
from recombine.errors import InputError
from recombine.record.codec import decode, encode
from recombine.serve.explorer.exchange import ComposedTask, Exploration, Question
from recombine.serve.explorer.explorer import Explorer
from recombine.serve.explorer.main import answer_line
from recombine.serve.explorer.scene import make_scene, task_latent
from recombine.storage.reader import run_config
from recombine.task.custom_task import check_custom_task, import_task
from recombine.task.evaluation import task_splits
from recombine.task.teacher import config_teacher, task_teacher

DOCS = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
EXAMPLE = re.findall(r"^```python\n(.*?)^```$", DOCS, re.DOTALL | re.MULTILINE)[0]
SIZES = ["--episodes", "20", "--length", "6", "--input-dim", "4", "--hidden-dim", "5"]

CLASSES = """
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

COUNT = iter(range(1000))


class Good(eqx.Module):
    w: jax.Array

    def __init__(self, task, *, key):
        self.w = jax.random.normal(key, (task.num_modules, task.input_dim))

    def label(self, z, x):
        return jnp.tanh(x @ (z @ self.w))


class Wide(Good):
    def label(self, z, x):
        return x @ self.w.T


class Several(Good):
    flat: bool = eqx.field(static=True)

    def __init__(self, task, *, key):
        super().__init__(task, key=key)
        self.flat = "flat" in dict(task.options)

    def label(self, z, x):
        u = super().label(z, x)
        return jnp.stack([u, jnp.zeros_like(u) if self.flat else u**2], axis=-1)


class Deaf(Good):
    def label(self, z, x):
        return jnp.tanh(x @ self.w[0])


class Constant(Good):
    def label(self, z, x):
        return jnp.full(len(x), z.sum())


class Infinite(Good):
    def label(self, z, x):
        return jnp.log(-(x[:, 0] ** 2)) * z[0]


class Crowd(Good):
    def label(self, z, x):
        y = super().label(z, x)
        return y - y.mean()


class Raises(Good):
    def label(self, z, x):
        raise RuntimeError("not yet")


class Changing(Good):
    def __init__(self, task, *, key):
        super().__init__(task, key=key)
        self.w = self.w + next(COUNT)


class Text(Good):
    name: str

    def __init__(self, task, *, key):
        super().__init__(task, key=key)
        self.name = "a"


class NoLabel(eqx.Module):
    def __init__(self, task, *, key):
        pass


class Plain:
    def __init__(self, task, *, key):
        pass


class NoKey(eqx.Module):
    def __init__(self, task):
        pass
"""


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One directory for all tests: a module is imported once."""
    path = tmp_path_factory.mktemp("classes")
    (path / "waves.py").write_text(EXAMPLE)
    (path / "task_classes.py").write_text(CLASSES)
    return path


@pytest.fixture
def here(classes: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(classes)
    return classes


def test_the_example_labels_as_printed(here: Path) -> None:
    """And a file of its episodes is scored."""
    options = ["--task", "waves:Waves", "--set", "task.options.spread=2.0"]
    assert main(["task", "sample", "--split", "all", *SIZES, *options, "--out", "a.npz"]) == 0
    with np.load("a.npz") as data:
        a = dict(data)
    own = np.isin(a["split"], ["in_dist", "ood", "novel"])
    F = np.einsum("em,mhd->ehd", a["latent"].astype(float), a["teacher.own.frequencies"].astype(float))
    y = np.sin(np.einsum("ehd,ed->eh", F, a["query_x"].astype(float))) @ a["teacher.own.a"].astype(float)
    np.testing.assert_allclose(y[own], a["query_y"][own], rtol=1e-3, atol=1e-5)
    assert np.std(a["teacher.own.frequencies"]) == pytest.approx(2 / np.sqrt(4), rel=0.2)
    np.savez("b.npz", prediction=y, digest=a["digest"])
    score = ["score", "b.npz", "--episodes", "a.npz", "--no-references"]
    assert main([*score, "--task", "waves:Waves"]) == 0


def test_the_example_trains_and_its_code_is_part_of_the_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--set", "optimizer.num_steps=4", "measure.snapshots=1", "measure.episodes=16", "model.num_layers=1"]
    train = ["train", "--preset", "smoke", *few, "--out", "run"]
    assert main([*train, "--task", "waves:Waves", "--stop-at", "2"]) == 0
    assert 'kind = "waves:Waves"' in (here / "run" / "config.toml").read_text()
    capsys.readouterr()
    assert main(train) == 2
    assert main([*train, "--task", "task_classes:Good"]) == 2
    assert "task.kind" in capsys.readouterr().err
    assert main([*train, "--task", "waves:Waves"]) == 0


@pytest.mark.slow
def test_the_example_is_examined(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--set", "optimizer.num_steps=4", "measure.snapshots=1", "measure.episodes=16", "model.num_layers=1"]
    for name, task in (("waves", "waves:Waves"), ("good", "task_classes:Good")):
        train = ["train", "--model", "hypertransformer", "--preset", "smoke", *few, "--task", task, "--out", name]
        assert main(train) == 0
        capsys.readouterr()
        assert main(["eval", name, "--task", task, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert ("control_modules" in found) == (name == "waves")
        assert found["references"]["known_latent"]["ood"]["r2"] == pytest.approx(1)
        assert found["references"]["oracle"]["in_dist"]["r2"] > found["references"]["ridge"]["in_dist"]["r2"]
        composed = ComposedTask((0.25, 0.0, 0.75, 0.0, 0.0, 0.0), 8)
        question = Question(paths=(os.fsencode(here / name),), custom_tasks=(task,), task=composed)
        explored = decode(answer_line(Explorer(), encode(question))[1], Exploration)
        teacher = config_teacher(run_config(here / name))
        scene = make_scene(composed, teacher)
        expected = teacher.label(task_latent(composed), scene.query_x)
        np.testing.assert_allclose(explored.truth.y, expected, rtol=1e-4, atol=1e-5)


def test_controls(here: Path) -> None:
    import_task("waves:Waves")
    import_task("task_classes:Good")
    assert "control_modules" in task_splits(TaskConfig(kind="waves:Waves"))
    assert "control_modules" not in task_splits(TaskConfig(kind="task_classes:Good"))
    teacher = task_teacher(TaskConfig(kind="waves:Waves", input_dim=4, hidden_dim=5), 3)
    other = task_teacher(TaskConfig(kind="waves:Waves", input_dim=4, hidden_dim=5), 4)
    kept = other.with_readout(teacher, True).own
    np.testing.assert_array_equal(kept.a, teacher.own.a)
    np.testing.assert_array_equal(kept.frequencies, other.own.frequencies)


BAD = {
    "Wide": r"float32\[8, 6\]",
    "Deaf": "latent",
    "Constant": "depend on x",
    "Infinite": "not finite",
    "Crowd": "other inputs",
    "Raises": "RuntimeError: not yet, task_classes.py line",
    "Changing": "same key",
    "Text": "static field",
    "NoLabel": "label",
    "Plain": r"equinox\.Module",
    "NoKey": "key",
    "Missing": "AttributeError",
}


@pytest.mark.parametrize("name", ["Good", *BAD])
def test_classes_are_checked(name: str, here: Path) -> None:
    kind = f"task_classes:{name}"
    task = TaskConfig(kind=kind, input_dim=4, hidden_dim=3)
    if name == "Good":
        import_task(kind)
        check_custom_task(task)
        return
    with pytest.raises(InputError, match=BAD[name]) as error:
        import_task(kind)
        check_custom_task(task)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "fields", [{"kind": "waves"}, {"options": (("spread", 2.0),)}, {"kind": "waves:Waves", "activation": "even"}]
)
def test_fields_that_do_not_go_together(fields: dict) -> None:
    with pytest.raises(InputError, match=r"task\."):
        TaskConfig(**fields)


def test_a_class_with_vector_labels(here: Path) -> None:
    """And one that labels with another number of outputs than the configuration has."""
    import_task("task_classes:Several")
    check_custom_task(task := TaskConfig(kind="task_classes:Several", input_dim=4, output_dim=2))
    teacher = task_teacher(task, 0)
    x, z = jnp.ones((3, 5, 4)), jnp.ones(6)
    assert teacher.label(z, x).shape == (3, 5, 2)
    assert teacher.label(z, x[0, 0]).shape == (2,)
    with pytest.raises(InputError, match=r"float32\[8, 2\] for 8 inputs; it must be float32\[8, 3\]"):
        check_custom_task(TaskConfig(kind="task_classes:Several", input_dim=4, output_dim=3))
    with pytest.raises(InputError, match="depend on x"):
        check_custom_task(TaskConfig(kind="task_classes:Several", input_dim=4, output_dim=2, options=(("flat", 1),)))
