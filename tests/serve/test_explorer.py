"""The explorer's answers equal what the models compute on the composed task."""

import os
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import least_squares
from sklearn.linear_model import Ridge as SklearnRidge
from starlette.datastructures import QueryParams

from recombine import paper
from recombine.errors import InputError
from recombine.record.codec import decode, encode, plain
from recombine.run.load import load_model
from recombine.serve.explorer import explorer as explorer_module
from recombine.serve.explorer.description import context_lengths
from recombine.serve.explorer.exchange import ComposedTask, Explicit, Exploration
from recombine.serve.explorer.explorer import Explorer
from recombine.serve.explorer.scene import make_scene, task_latent
from recombine.serve.query import asked_latent
from recombine.storage.demo import demo_archives
from recombine.storage.source import find_runs
from recombine.stream import Stream
from recombine.task.sample import sample_masks
from recombine.task.teacher import config_teacher
from tests.serve.server import copy_demo_run, demo_run

WEIGHTS = (0.25, 0.0, 0.75, 0.0, 0.0, 0.0)


@pytest.fixture(scope="module")
def runs() -> list[Path]:
    """The runs of the demo."""
    return [demo_run(f"quick/{kind}-connected+-seed0") for kind in ("transformer", "hypertransformer")]


@pytest.fixture(scope="module")
def explorer() -> Explorer:
    return Explorer()


def test_predictions_are_the_models(explorer: Explorer, runs: list[Path]) -> None:
    task = ComposedTask(WEIGHTS, 8, draw=3)
    answer = explorer.explore(runs, task)
    config, model, _ = load_model(runs[0])
    teacher = config_teacher(config)
    z = np.asarray(task_latent(task))
    np.testing.assert_allclose(z, [0.625, 0, 0.875, 0, 0, 0])
    scene = make_scene(task, teacher)
    theta, a = np.asarray(teacher.theta, np.float64), np.asarray(teacher.a, np.float64)
    W = np.einsum("m,mhd->hd", z, theta)
    W /= np.linalg.svd(W)[1][0]
    hidden = np.asarray(scene.query_x, np.float64) @ W.T
    truth = np.asarray(jax.nn.gelu(jnp.asarray(hidden), approximate=False), np.float64) @ a
    np.testing.assert_allclose(answer.truth.y, truth, atol=1e-5)
    mean = np.mean(answer.context.y)
    for path, one in zip(runs, answer.models, strict=True):
        _, model, _ = load_model(path)
        compiled = eqx.filter_jit(model)
        alone = [float(compiled(scene.context_x, scene.context_y, x).y) for x in scene.query_x]
        np.testing.assert_allclose(one.y, alone, atol=2e-5)
        r2 = 1 - np.sum((truth - alone) ** 2) / np.sum((truth - mean) ** 2)
        np.testing.assert_allclose(one.r2, r2, atol=1e-4)
        attention = model(scene.context_x, scene.context_y, scene.query_x[0]).trace.attention
        np.testing.assert_allclose(one.attention, attention[:, :, -1], atol=1e-4)
    ridge = SklearnRidge(alpha=1.0).fit(scene.context_x, scene.context_y)
    r2 = 1 - np.sum((truth - ridge.predict(scene.query_x)) ** 2) / np.sum((truth - mean) ** 2)
    np.testing.assert_allclose(answer.ridge, r2, atol=1e-4)


def test_the_latent_is_decoded_at_many_queries(explorer: Explorer, runs: list[Path]) -> None:
    """Compared with scikit-learn's ridge regression, fitted on the models' output for trained masks: on the residual
    stream of the transformer, and on the latent of the hypertransformer."""
    task = ComposedTask(WEIGHTS, 15, draw=3)
    answer = explorer.explore(runs, task)
    for path, one in zip(runs, answer.models, strict=True):
        config, model, _ = load_model(path)
        teacher, support = config_teacher(config), config.task.support
        fit = sample_masks(config.seed, Stream.probe, teacher, support.masks, config.task.episode_length, 2_000)

        def stream(context_x: jax.Array, context_y: jax.Array, x: jax.Array, model: Any = model) -> jax.Array:
            trace = model(context_x, context_y, x).trace
            return trace.residual[-1, -1] if trace.latent is None else trace.latent

        streams = jax.jit(jax.vmap(stream))(fit.context_x, fit.context_y, fit.query_x)
        probe = SklearnRidge(alpha=1.0).fit(np.asarray(streams, np.float64), np.asarray(fit.latent))
        scene = make_scene(task, teacher)
        at = jax.vmap(lambda x, s=scene, f=stream: f(s.context_x, s.context_y, x))(scene.query_x[:32])
        decoded = probe.predict(np.asarray(at, np.float64))
        np.testing.assert_allclose(one.decoded, decoded.mean(axis=0), atol=2e-3)
        np.testing.assert_allclose(one.deviation, decoded.std(axis=0), atol=2e-3)
    assert max(answer.models[0].deviation) > 0.01 > max(answer.models[1].deviation), "it knows no query"


def test_the_demo(explorer: Explorer) -> None:
    """The demo has a trained model of each kind and support; the two of the paper fit their training tasks."""
    trained = [
        source.path for archive in demo_archives().values() for source in find_runs(archive) if source.has_parameters()
    ]
    configs = [load_model(path)[0] for path in trained]
    kinds = {(config.model.kind, config.task.support.name) for config in configs}
    assert kinds == set(product(("transformer", "hypertransformer"), paper.SUPPORTS))
    pair = [demo_run(f"paper/{kind}-connected+-seed0") for kind in ("transformer", "hypertransformer")]
    answers = [explorer.explore(pair, ComposedTask((0.5, 0.5, 0, 0, 0, 0), 31, draw=draw)) for draw in range(4)]
    for models in zip(*(answer.models for answer in answers), strict=True):
        assert np.mean([one.r2 for one in models]) > 0.95


def test_a_latent_that_is_moved_is_executed(explorer: Explorer, runs: list[Path]) -> None:
    task = ComposedTask(WEIGHTS, 8)
    before = explorer.explore([runs[1]], task).models[0]
    same = explorer.explore([runs[1]], task, [before.inferred]).models[0]
    np.testing.assert_allclose(same.y, before.y, atol=1e-4)
    moved = explorer.explore([runs[1]], task, [(2.0,) * 6]).models[0]
    _, model, _ = load_model(runs[1])
    scene = make_scene(task, explorer._load(runs[1]).teacher)
    alone = [float(model.execute(jnp.full(6, 2.0), x)) for x in scene.query_x]  # pyright: ignore
    np.testing.assert_allclose(moved.y, alone, atol=2e-5)
    assert moved.inferred == before.inferred, "what it inferred is still shown"


def test_explicit_inference(explorer: Explorer, runs: list[Path]) -> None:
    """From either start, the steps end where SciPy's least squares on the context ends."""
    task = ComposedTask((0.3, 0, 0, 0.7, 0, 0), 15)
    _, model, _ = load_model(runs[1])
    scene = make_scene(task, explorer._load(runs[1]).teacher)
    inferred = explorer.explore([runs[1]], task).models[0]
    execute = jax.jit(jax.vmap(model.execute, in_axes=(None, 0)))  # pyright: ignore

    def residual(z: np.ndarray) -> np.ndarray:
        return np.asarray(execute(jnp.asarray(z, jnp.float32), scene.context_x), np.float64) - scene.context_y

    for start, first in (("own", inferred.inferred), ("zero", (0.0,) * 6)):
        before, one, last = (explorer.explore([runs[1]], task, [Explicit(start, k)]).models[0] for k in (0, 1, 10))
        assert before.used == first
        assert len(last.by_step) == 11
        found = least_squares(residual, last.used, diff_step=1e-3)
        np.testing.assert_allclose(last.y, execute(jnp.asarray(found.x, jnp.float32), scene.query_x), atol=5e-3)
        np.testing.assert_allclose([before.r2, one.r2, last.r2], np.take(last.by_step, [0, 1, 10]), atol=1e-4)
        np.testing.assert_allclose(last.slice, execute(jnp.asarray(last.used), scene.slice_x), atol=2e-5)
        assert last.decoded != inferred.decoded, "the bars follow the latent"
        if start == "own":
            np.testing.assert_allclose([before.r2, *before.decoded], [inferred.r2, *inferred.decoded], atol=1e-4)
            assert last.r2 > inferred.r2  # pyright: ignore
    traced, kind = [], type(model)
    called = kind.__call__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "__call__", lambda self, *args: traced.append(1) or called(self, *args))
        explorer.explore([runs[1]], task, [Explicit("own", 5)])
    assert traced == [], "another number of steps compiles nothing"
    with pytest.raises(InputError, match="has no latent that can be replaced"):
        explorer.explore([runs[0]], task, [Explicit("own", 1)])
    for text, problem in (("own-11", "0 to 10"), ("own-x", "whole number"), ("none-3", "numbers")):
        with pytest.raises(InputError, match=problem):
            asked_latent(QueryParams({"latent0": text}), "latent0")


def test_the_true_latent(explorer: Explorer, runs: list[Path]) -> None:
    """With the true latent, the hypertransformer at the paper's settings solves a task that it does not infer."""
    pair = [demo_run(f"paper/{kind}-connected+-seed0") for kind in ("transformer", "hypertransformer")]
    for weights in ((0.3, 0, 0, 0.7, 0, 0), (1, 1, 0, 1, 0, 0)):
        inferred = explorer.explore(pair, ComposedTask(weights, 31)).models[1]
        true = explorer.explore(pair, ComposedTask(weights, 31), [None, "true"]).models[1]
        assert inferred.used is None
        np.testing.assert_allclose(true.used, inferred.true, rtol=1e-4)
        assert true.r2 > 0.99
        assert inferred.r2 < 0.99
    with pytest.raises(InputError, match="trained on another teacher"):
        explorer.explore(pair, ComposedTask(weights, 31, fresh=1), [None, "true"])
    assert explorer.explore(pair, ComposedTask(weights, 31, fresh=1)).models[1].true is None
    with pytest.raises(InputError, match="transformer has no latent"):
        explorer.explore(pair, ComposedTask(weights, 31), ["true"])


def test_kinds_of_tasks(explorer: Explorer, runs: list[Path]) -> None:
    def kind(weights: tuple[float, ...], **more) -> str:
        return explorer.explore([runs[0]], ComposedTask(weights, 8, **more)).models[0].kind

    assert kind((1, 1, 0, 0, 0, 0)) == "trained"
    assert kind((1, 0, 0, 1, 0, 0)) == "held_out"
    assert kind((1, 1, 1, 0, 0, 0)) == "other"
    assert kind((1, 1, 0, 0, 0, 0), fresh=1) == "control"


def test_one_task_two_supports(explorer: Explorer, runs: list[Path]) -> None:
    """A mask that one model trained on may be held out from another: Table 1 has 001100 in connected+ alone."""
    other = demo_run("quick/transformer-disconnected-seed0")
    found = explorer.explore([runs[0], other], ComposedTask((0, 0, 1, 1, 0, 0), 8)).models
    assert [one.kind for one in found] == ["trained", "held_out"]


def test_a_checkpoint_that_is_new_answers_once_it_was_described(tmp_path: Path) -> None:
    for support, name in (("connected+", "run"), ("disconnected", "other")):
        copy_demo_run(f"quick/hypertransformer-{support}-seed0", tmp_path / name)
    explorer, task = Explorer(), ComposedTask(WEIGHTS, 8)
    before = explorer.explore([tmp_path / "run"], task).models[0].y
    shutil.copy(tmp_path / "other" / "model.safetensors", tmp_path / "run")
    os.utime(tmp_path / "run" / "model.safetensors")
    assert explorer.explore([tmp_path / "run"], task).models[0].y == before, "no pause amid a gesture"
    explorer.describe(tmp_path / "run")
    assert explorer.explore([tmp_path / "run"], task).models[0].y != before


@pytest.mark.parametrize("linked", ["checkpoints", "inside"])
def test_checkpoints_elsewhere_are_not_read(tmp_path: Path, linked: str) -> None:
    elsewhere, run = tmp_path / "elsewhere", tmp_path / "run"
    (elsewhere / "step-000000012").mkdir(parents=True)
    copy_demo_run("quick/transformer-connected+-seed0", run)
    link = run / "checkpoints" / "step-000000012" if linked == "inside" else run / "checkpoints"
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(elsewhere / "step-000000012" if linked == "inside" else elsewhere)
    with pytest.raises(InputError, match="symbolic link"):
        Explorer(tmp_path).describe(run)


def test_a_fresh_teacher_and_other_draws(explorer: Explorer, runs: list[Path]) -> None:
    def labels(**more) -> tuple[float, ...]:
        return explorer.explore([runs[0]], ComposedTask(WEIGHTS, 8, **more)).truth.y

    assert labels() == labels()
    assert labels() != labels(draw=1)
    assert labels(fresh=0) != labels()
    assert labels(fresh=0) != labels(fresh=1)


def test_more_context_keeps_what_was_there(explorer: Explorer, runs: list[Path]) -> None:
    few, many = (explorer.explore([runs[0]], ComposedTask(WEIGHTS, n)).context.y for n in (3, 8))
    np.testing.assert_allclose(many[:3], few, atol=1e-6)


def test_a_line_along_an_input(explorer: Explorer, runs: list[Path]) -> None:
    task = ComposedTask(WEIGHTS, 8, direction=2)
    scene = make_scene(task, explorer._load(runs[0]).teacher)
    x = np.asarray(scene.slice_x)
    np.testing.assert_allclose(x[:, 1], np.linspace(-np.sqrt(3), np.sqrt(3), len(x)), atol=1e-6)
    assert np.ptp(np.delete(x, 1, axis=1), axis=0).max() < 1e-6
    answer = explorer.explore([runs[0]], task)
    np.testing.assert_allclose(answer.slice.context, scene.context_x[:, 1], atol=1e-5)


def test_what_is_met_for_the_first_time(explorer: Explorer, runs: list[Path]) -> None:
    """A model that must be loaded or compiled is counted once."""
    explorer.explore([runs[0]], ComposedTask(WEIGHTS, 8))
    before = explorer.first_times
    explorer.explore([runs[0]], ComposedTask(WEIGHTS, 8, draw=3))
    explorer.describe(runs[0])
    assert explorer.first_times == before
    explorer.explore([runs[0]], ComposedTask(WEIGHTS, 2))
    assert explorer.first_times == before + 1


def test_moving_the_latent_compiles_nothing(
    explorer: Explorer, runs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    inferred = explorer.explore([runs[1]], ComposedTask(WEIGHTS, 8)).models[0].inferred
    traced = []
    kind = type(explorer.loaded[runs[1]].model)
    called = kind.__call__
    monkeypatch.setattr(kind, "__call__", lambda self, *args: traced.append(1) or called(self, *args))
    explorer.explore([runs[1]], ComposedTask(WEIGHTS, 8), [tuple(2 * value for value in inferred)])
    assert traced == []
    explorer.explore([runs[1]], ComposedTask(WEIGHTS, 3))
    assert traced != [], "another length does"


def test_moving_the_latent_of_one_runs_the_other_once(
    explorer: Explorer, runs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, run = [], explorer_module._run
    monkeypatch.setattr(
        explorer_module, "_run", lambda model, *rest: ran.append(type(model).__name__) or run(model, *rest)
    )
    task = ComposedTask(WEIGHTS, 8, draw=11)
    moved = [explorer.explore(runs, task, [None, (value,) * 6]) for value in (0.5, 1.0, 1.5)]
    assert ran.count("Transformer") == 1
    assert ran.count("Hypertransformer") == 3
    assert len({answer.models[1].r2 for answer in moved}) == 3
    other = explorer.explore(runs, ComposedTask(WEIGHTS, 8, draw=12))
    assert other.models[0] != moved[0].models[0]
    assert other == Explorer().explore(runs, ComposedTask(WEIGHTS, 8, draw=12))


@pytest.mark.slow
def test_compiling_ahead_ends(explorer: Explorer, runs: list[Path]) -> None:
    rounds = 0
    while explorer.compile_ahead(runs):
        rounds += 1
    assert rounds <= 3 * len(context_lengths(16))
    assert explorer.compiled[runs[0]] == {(n, False) for n in context_lengths(16)}
    assert explorer.compiled[runs[1]] >= {(n, explicit) for n in context_lengths(16) for explicit in (False, True)}


def test_the_keys_that_the_page_reads(explorer: Explorer, runs: list[Path]) -> None:
    """The answer has the keys that `static/explore.js` and `static/explore_plots.js` read."""
    answer = explorer.explore(runs, ComposedTask(WEIGHTS, 8))
    assert decode(encode(answer), Exploration) == answer
    found = plain(answer)
    assert set(found) == {"latent", "context", "truth", "slice", "ridge", "models"}
    assert [set(found[name]) for name in ("context", "truth", "slice")] == [{"y"}, {"y", "slice"}, {"t", "context"}]
    assert set(found["models"][0]) == {
        *("kind", "true", "model", "y", "slice", "r2"),
        *("inferred", "used", "by_step", "decoded", "deviation", "attention"),
    }
    described = plain(explorer.describe(runs[0]))
    assert set(described) == {
        *("model", "step", "teacher", "support", "modules", "masks"),
        *("input_dim", "trained_length", "lengths", "latent_dim", "in_page"),
    }
    assert set(described["masks"]) == {"trained", "held_out"}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"weights": (1.0, 1.0)}, "weights"),
        ({"weights": (0.0,) * 6}, "weights"),
        ({"weights": (float("nan"),) + (1.0,) * 5}, "weights"),
        ({"weights": (-1.0,) + (1.0,) * 5}, "weights"),
        ({"length": 5}, "length"),
        ({"length": 100_000}, "length"),
        ({"draw": 2**40}, "draw"),
        ({"direction": 9}, "direction"),
        ({"teacher_of": 2}, "teacher_of"),
    ],
)
def test_bad_tasks(explorer: Explorer, runs: list[Path], changes: dict, field: str) -> None:
    with pytest.raises(InputError, match=f"^{field} = "):
        explorer.explore(runs, ComposedTask(**({"weights": WEIGHTS, "length": 8} | changes)))


def test_bad_latents(explorer: Explorer, runs: list[Path]) -> None:
    for latents in ([(1.0,)], [(float("inf"),) * 6], [(1e9,) * 6]):
        with pytest.raises(InputError, match=r"^latent = "):
            explorer.explore([runs[1]], ComposedTask(WEIGHTS, 8), latents)
    with pytest.raises(InputError, match="no latent that can be replaced"):
        explorer.explore([runs[0]], ComposedTask(WEIGHTS, 8), [(1.0,) * 6])
