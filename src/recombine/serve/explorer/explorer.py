"""The explorer: runs trained models on a task that a visitor composed."""

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array

from recombine.config.schema import ComputeConfig
from recombine.config.task import VARIATIONS
from recombine.errors import InputError
from recombine.measure.reference.baselines import RIDGE_STRENGTH
from recombine.measure.ridge import fit_ridge
from recombine.model.forward import predict_batch
from recombine.model.framework.torch_model import TorchModel
from recombine.model.interface import LatentModel, Model, Trace
from recombine.model.weights import named_arrays
from recombine.serve.explorer.description import context_lengths, describe_model
from recombine.serve.explorer.exchange import (
    ComposedTask,
    ContextLabels,
    Explicit,
    Exploration,
    Inputs,
    Latent,
    Line,
    ModelAnswer,
    ModelDescription,
    TaskKind,
    TrueLabels,
)
from recombine.serve.explorer.in_page import (
    PackedMap,
    PackedTeacher,
    PageMaps,
    PageModel,
    PageScene,
    check_in_page,
)
from recombine.serve.explorer.latent import Replacement, replace_latent, true_latent
from recombine.serve.explorer.model import ExploredModel, load_explored, parameters_stamp
from recombine.serve.explorer.scene import (
    NUM_QUERIES,
    NUM_READ,
    NUM_SLICE,
    Scene,
    fresh_teacher,
    make_scene,
    scene_inputs,
    task_latent,
)
from recombine.story.pack import pack_model, packed_floats
from recombine.task.interface import Teacher
from recombine.task.teacher import HypernetworkTeacher

MOST_LOADED = 32
MOST_RUNS = 2

Numbers = tuple[float, ...]


class Explorer:
    """Answers questions about trained models. It is not thread-safe: it has its own process.

    The runs are below the directory `below`, and no link there is followed. If not `stored`, it fits anew what is
    stored of the demo's models.
    """

    def __init__(self, below: Path | None = None, stored: bool = True) -> None:
        self.below, self.stored = below, stored
        self.loaded: OrderedDict[Path, ExploredModel] = OrderedDict()
        self.compiled: dict[Path, set[tuple[int, bool]]] = {}
        """The context lengths that each model is compiled for, without and with explicit inference."""
        self.last: dict[Path, tuple[object, ModelAnswer]] = {}
        """The last answer of each model: while the latent of one is moved, the other is not run again."""
        self.first_times = 0
        """The number of times that a model was loaded, or compiled for a length, for the first time."""

    def describe(self, path: Path) -> ModelDescription:
        """A run's model, as of its newest checkpoint. `explore` then answers with the same model."""
        if (known := self.loaded.get(path)) and known.stamp != parameters_stamp(path, self.below):
            del self.loaded[path]
        run = self._load(path)
        return describe_model(run.config, run.step, run.latent_dim)

    def pack(self, path: Path) -> PageModel:
        """A run's model, for the page to run: the one that was described."""
        run = self._load(path)
        check_in_page(describe_model(run.config, run.step, run.latent_dim))
        probe = None if run.probe is None else PackedMap(*map(packed_floats, run.probe))
        to_inferred = None if run.to_inferred is None else PackedMap(*map(packed_floats, run.to_inferred))
        packed = pack_model(run.config, named_arrays(run.model), run.step, "single")
        return PageModel(packed, PageMaps(probe, to_inferred))

    def scene(self, path: Path, inputs: Inputs) -> PageScene:
        """The teacher of a run, or a fresh one, and the inputs of a draw."""
        run = self._load(path)
        check_in_page(describe_model(run.config, run.step, run.latent_dim))
        teacher = run.teacher if inputs.fresh is None else fresh_teacher(inputs.fresh, run.teacher)
        assert isinstance(teacher, HypernetworkTeacher)
        length = max(context_lengths(run.config.task.episode_length))
        context, queries, base = map(packed_floats, scene_inputs(inputs, teacher, length))
        packed = PackedTeacher(teacher.theta.shape, packed_floats(teacher.theta), packed_floats(teacher.a))
        return PageScene(teacher=packed, context=context, queries=queries, base=base, line=NUM_SLICE, read=NUM_READ)

    def explore(self, paths: Sequence[Path], task: ComposedTask, latents: Sequence[Latent | None] = ()) -> Exploration:
        """Each model's predictions for a task. `latents` replaces the latents that the models infer."""
        if not 1 <= len(paths) <= MOST_RUNS:
            raise InputError("run", len(paths), f"one or {MOST_RUNS} of them")
        runs = [self._load(path) for path in paths]
        _check_task(task, runs)
        teacher = runs[task.teacher_of].teacher
        if task.fresh is not None:
            teacher = fresh_teacher(task.fresh, teacher)
        scene, latent = make_scene(task, teacher), task_latent(task)
        answers = []
        for i, (path, run) in enumerate(zip(paths, runs, strict=True)):
            kind = _kind(task, run, teacher)
            true = _numbers(true_latent(run, latent)) if run.to_inferred and kind != "control" else None
            asked = latents[i] if i < len(latents) else None
            question = (run.stamp, paths[task.teacher_of], runs[task.teacher_of].stamp, task, asked)
            if path not in self.last or self.last[path][0] != question:
                self.last[path] = question, _answer(run, scene, kind, true, replace_latent(run, scene, asked, true))
            answers.append(self.last[path][1])
            self._count_use(path, (task.length, isinstance(asked, Explicit)))
        return Exploration(
            latent=_numbers(latent),
            context=ContextLabels(_numbers(scene.context_y)),
            truth=TrueLabels(_numbers(scene.query_y), _numbers(scene.slice_y)),
            slice=Line(_numbers(scene.slice_t), _numbers(scene.context_x @ scene.direction)),
            ridge=_ridge_r2(scene),
            models=tuple(answers),
        )

    def compile_ahead(self, paths: Sequence[Path]) -> bool:
        """Compile one more context length of these models; False when there is none left."""
        for path in paths:
            run = self._load(path)
            length = run.config.task.episode_length
            for n in sorted(context_lengths(length), key=lambda n: abs(n - length + 1)):
                for latent in (None, Explicit("own", 0)) if run.latent_dim else (None,):
                    if (n, latent is not None) not in self.compiled[path]:
                        weights = (1.0, *[0.0] * (run.config.task.num_modules - 1))
                        self.explore([path], ComposedTask(weights, n), [latent])
                        return True
        return False

    def _load(self, path: Path) -> ExploredModel:
        if path not in self.loaded:
            self.loaded[path] = load_explored(path, self.below, self.stored)
            self._count_use(path)
        self.loaded.move_to_end(path)
        while len(self.loaded) > MOST_LOADED:
            self.loaded.popitem(last=False)
            jax.clear_caches()  # JAX cannot drop the programs of one model alone
            self.compiled = {other: set() for other in self.compiled}
        return self.loaded[path]

    def _count_use(self, path: Path, *programs: tuple[int, bool]) -> None:
        if path not in self.compiled or not self.compiled[path].issuperset(programs):
            self.first_times += 1
        self.compiled.setdefault(path, set()).update(programs)


@eqx.filter_jit
def _run(
    model: Model, compute: ComputeConfig, scene: Scene, latent: Array | None, is_replaced: Array
) -> tuple[Array, Array, Array | None, Trace]:
    """The predictions for the queries and the line, the last residual streams of some queries, the first one's trace.

    The program is the same whether the latent is replaced or not, so that the first replacement compiles nothing.
    """
    _, trace = model(scene.context_x, scene.context_y, scene.query_x[0])
    x = jnp.concatenate([scene.query_x, scene.slice_x])
    if trace.latent is not None and isinstance(model, LatentModel):
        z = trace.latent if latent is None else jnp.where(is_replaced, latent, trace.latent)
        y = jax.vmap(lambda x: model.execute(z, x))(x)
    else:
        shared = (scene.context_x, scene.context_y)
        context_x, context_y = (jnp.broadcast_to(array, (len(x), *array.shape)) for array in shared)
        y = predict_batch(model, context_x, context_y, x, compute)
    streams = jax.vmap(lambda x: _last(model(scene.context_x, scene.context_y, x).trace))(scene.query_x[:NUM_READ])
    return y[:NUM_QUERIES], y[NUM_QUERIES:], streams, trace


def _run_torch(model: TorchModel, scene: Scene) -> tuple[Array, Array, Array | None, Trace]:
    """The same of a PyTorch model, which computes outside of JAX. It executes no latent, so none is replaced."""
    _, trace = model(scene.context_x, scene.context_y, scene.query_x[0])
    x = jnp.concatenate([scene.query_x, scene.slice_x])
    context_x, context_y = (jnp.repeat(array[None], len(x), axis=0) for array in (scene.context_x, scene.context_y))
    y, residual, _ = model.forward(context_x, context_y, x)
    streams = None if residual is None else residual[:NUM_READ, -1]
    return y[:NUM_QUERIES], y[NUM_QUERIES:], streams, trace


def _last(trace: Trace) -> Array | None:
    """The last residual stream of the token that is read out."""
    return None if trace.residual is None else trace.residual[-1, -1]


def _answer(
    run: ExploredModel, scene: Scene, kind: TaskKind, true: Numbers | None, replacement: Replacement | None
) -> ModelAnswer:
    latent, by_step = (None, None) if replacement is None else replacement
    given = jnp.zeros(run.latent_dim) if latent is None and run.latent_dim else latent
    is_replaced = jnp.asarray(latent is not None)
    if isinstance(run.model, TorchModel):
        query_y, slice_y, streams, trace = _run_torch(run.model, scene)
    else:
        query_y, slice_y, streams, trace = _run(run.model, run.config.compute, scene, given, is_replaced)
    executed = trace.latent if latent is None else latent
    features = executed[None] if run.latent_dim and executed is not None else streams
    decoded = None
    if run.probe is not None and features is not None:
        decoded = np.asarray(features, np.float64) @ np.asarray(run.probe.weights) + np.asarray(run.probe.intercept)
    return ModelAnswer(
        kind=kind,
        true=true,
        model=run.config.model.label,
        y=_numbers(query_y),
        slice=_numbers(slice_y),
        r2=_r2(query_y, scene),
        inferred=None if trace.latent is None else _numbers(trace.latent),
        used=None if latent is None else _numbers(latent),
        by_step=None if by_step is None else tuple(_r2(y, scene) for y in np.asarray(by_step)),
        decoded=None if decoded is None else _numbers(decoded.mean(axis=0)),
        deviation=None if decoded is None else _numbers(decoded.std(axis=0)),
        attention=None if trace.attention is None else _attention(trace.attention),
    )


def _attention(attention: Array) -> tuple[tuple[Numbers, ...], ...]:
    weights = np.asarray(attention[:, :, -1], np.float64).round(4)
    return tuple(tuple(_numbers(head) for head in layer) for layer in weights)


def _r2(predicted: ArrayLike, scene: Scene) -> float | None:
    """R² on this task, over its queries, relative to the mean of the context's labels."""
    y, mean = np.asarray(scene.query_y, np.float64), float(np.mean(np.asarray(scene.context_y, np.float64)))
    spread = np.sum((y - mean) ** 2)
    r2 = 1 - np.sum((y - np.asarray(predicted, np.float64)) ** 2) / spread if spread > 0 else np.nan
    return float(r2) if np.isfinite(r2) else None


def _ridge_r2(scene: Scene) -> float | None:
    """R² of ridge regression on the context (intercept unpenalised)."""
    ridge = fit_ridge(scene.context_x, scene.context_y[:, None], RIDGE_STRENGTH)
    return _r2(ridge(scene.query_x)[:, 0], scene)


def _check_task(task: ComposedTask, runs: Sequence[ExploredModel]) -> None:
    """Refuse a task that does not fit the models, and models that do not fit each other."""
    first = runs[0].config.task
    for name in ("input_dim", "hidden_dim", "num_modules", "episode_length", *VARIATIONS):
        values = [getattr(run.config.task, name) for run in runs]
        if len(set(values)) > 1:
            raise InputError(f"task.{name}", f"{values[0]} and {values[1]}", "must be the same for both runs")
    if len(task.weights) != first.num_modules:
        raise InputError("weights", list(task.weights), f"{first.num_modules} of them, one per module")
    if task.length not in context_lengths(first.episode_length):
        raise InputError("length", task.length, f"one of {context_lengths(first.episode_length)}")
    if not 0 <= task.direction <= first.input_dim:
        raise InputError("direction", task.direction, f"an axis from 1 to {first.input_dim}, or 0")
    if not 0 <= task.teacher_of < len(runs):
        raise InputError("teacher_of", task.teacher_of, f"one of the {len(runs)} runs, from 0")


def _kind(task: ComposedTask, run: ExploredModel, teacher: Teacher) -> TaskKind:
    if not eqx.tree_equal(run.teacher, teacher):
        return "control"
    support = run.config.task.support
    return "trained" if task.mask in support.masks else "held_out" if task.mask in support.held_out else "other"


def _numbers(array: ArrayLike) -> Numbers:
    """The numbers with six digits. JSON has no NaN and no infinity, so these raise an error."""
    values = np.asarray(array, np.float64)
    if not np.isfinite(values).all():
        raise ArithmeticError("the model computes a number that is not finite")
    return tuple(float(f"{value:.6g}") for value in values.tolist())
