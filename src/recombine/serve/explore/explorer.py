"""What trained models make of one task that somebody composes."""

from collections import OrderedDict
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from recombine.checks import check_number
from recombine.errors import InputError
from recombine.measure.reference.baselines import RIDGE_STRENGTH
from recombine.measure.ridge import fit_ridge
from recombine.model.batch import predict_batch
from recombine.model.interface import Model, Trace
from recombine.serve.explore.model import Loaded, load, newest, true_latent
from recombine.serve.explore.scene import NUM_QUERIES, NUM_READ, Scene, Task, context_lengths, fresh_teacher, make_scene
from recombine.support.mask import format_mask
from recombine.task.teacher import Teacher

MOST_LOADED = 32
MOST_RUNS = 2
TRUE = "true"
Latent = list[float] | str
"""What replaces a latent: numbers, or `TRUE`, what the task's own latent maps to."""


class Explorer:
    """Answers questions about trained models. Not thread-safe: it lives in a process of its own."""

    def __init__(self) -> None:
        self.loaded: OrderedDict[Path, Loaded] = OrderedDict()
        self.compiled: dict[Path, set[int]] = {}
        """The context lengths that a model was asked about: those that are compiled."""
        self.firsts = 0
        """How often something had to be loaded or compiled that never was before."""

    def describe(self, path: Path) -> dict[str, Any]:
        """What there is to know of a run before a task is composed: as of its newest checkpoint, which then answers."""
        if (known := self.loaded.get(path)) and known.stamp != newest(path):
            del self.loaded[path]
        one = self._load(path)
        support = one.config.task.support
        return {
            "model": one.config.model.label,
            "step": one.step,
            "teacher": one.config.seed if one.config.teacher_seed is None else one.config.teacher_seed,
            "support": support.name,
            "modules": support.num_modules,
            "masks": {
                "trained": [format_mask(mask) for mask in support.masks],
                "held_out": [format_mask(mask) for mask in support.held_out],
            },
            "input_dim": one.config.task.input_dim,
            "trained_length": one.config.task.episode_length - 1,
            "lengths": context_lengths(one.config.task.episode_length),
            "latent_dim": one.latent_dim,
        }

    def explore(self, paths: list[Path], task: Task, latents: list[Latent | None]) -> dict[str, Any]:
        """Each model's predictions, and what it computed on the way. `latents` replaces what each inferred."""
        if not 1 <= len(paths) <= MOST_RUNS:
            raise InputError("run", len(paths), f"one or {MOST_RUNS} of them")
        runs = [self._load(path) for path in paths]
        first = runs[0].config.task
        _check_alike(runs)
        if len(task.weights) != first.num_modules:
            raise InputError("weights", list(task.weights), f"{first.num_modules} of them, one per module")
        if task.length not in context_lengths(first.episode_length):
            raise InputError("length", task.length, f"one of {context_lengths(first.episode_length)}")
        if not 0 <= task.direction <= first.input_dim:
            raise InputError("direction", task.direction, f"an axis from 1 to {first.input_dim}, or 0")
        if not 0 <= task.teacher_of < len(runs):
            raise InputError("teacher_of", task.teacher_of, f"one of the {len(runs)} runs, from 0")
        teacher = runs[task.teacher_of].teacher
        if task.fresh is not None:
            teacher = fresh_teacher(task.fresh, teacher)
        scene = make_scene(task, teacher)
        answers = []
        for i, (path, run) in enumerate(zip(paths, runs, strict=True)):
            kind = _kind(task, run, teacher)
            true = _list(true_latent(run, task.latent)) if run.to_inferred and kind != "control" else None
            latent = _replacement(run, latents[i] if i < len(latents) else None, true)
            answers.append({"kind": kind, "true": true, **_answer(run, scene, latent)})
            self._met(path, task.length)
        return {
            "latent": _list(task.latent),
            "context": {"y": _list(scene.context_y)},
            "truth": {"y": _list(scene.query_y), "slice": _list(scene.slice_y)},
            "slice": {"t": _list(scene.slice_t), "context": _list(scene.context_x @ scene.direction)},
            "ridge": _ridge_r2(scene),
            "models": answers,
        }

    def warm(self, paths: list[Path]) -> bool:
        """Compile one more length of these models; False when there is none left."""
        for path in paths:
            run = self._load(path)
            length = run.config.task.episode_length
            for n in sorted(context_lengths(length), key=lambda n: abs(n - length + 1)):
                if n not in self.compiled[path]:
                    weights = (1.0, *[0.0] * (run.config.task.num_modules - 1))
                    self.explore([path], Task(weights, n), [])
                    return True
        return False

    def _load(self, path: Path) -> Loaded:
        if path not in self.loaded:
            self.loaded[path] = load(path)
            self._met(path)
        self.loaded.move_to_end(path)
        while len(self.loaded) > MOST_LOADED:
            self.loaded.popitem(last=False)
            jax.clear_caches()  # its programs with it: nobody else knows which they are
            self.compiled = {other: set() for other in self.compiled}
        return self.loaded[path]

    def _met(self, path: Path, *lengths: int) -> None:
        if path not in self.compiled or not self.compiled[path].issuperset(lengths):
            self.firsts += 1
        self.compiled.setdefault(path, set()).update(lengths)


@eqx.filter_jit
def _run(
    model: Model, compute: Any, scene: Scene, latent: Array | None, moved: Array
) -> tuple[Array, Array, Array | None, Trace]:
    """Predictions for the queries and the line, what the read-out sees at some queries, and the trace of the first.

    One program whether the latent was `moved` or not: who moves it first need not wait for a second one.
    """
    _, trace = model(scene.context_x, scene.context_y, scene.query_x[0])
    x = jnp.concatenate([scene.query_x, scene.slice_x])
    if trace.latent is not None and hasattr(model, "execute"):
        executes: Any = model
        z = trace.latent if latent is None else jnp.where(moved, latent, trace.latent)
        y = jax.vmap(lambda x: executes.execute(z, x))(x)
    else:
        shared = (scene.context_x, scene.context_y)
        context_x, context_y = (jnp.broadcast_to(array, (len(x), *array.shape)) for array in shared)
        y = predict_batch(model, context_x, context_y, x, compute)
    streams = jax.vmap(lambda x: _last(model(scene.context_x, scene.context_y, x).trace))(scene.query_x[:NUM_READ])
    return y[:NUM_QUERIES], y[NUM_QUERIES:], streams, trace


def _last(trace: Trace) -> Array | None:
    """The last residual stream of the token that is read out."""
    return None if trace.residual is None else trace.residual[-1, -1]


def _answer(run: Loaded, scene: Scene, latent: Array | None) -> dict[str, Any]:
    given = jnp.zeros(run.latent_dim) if latent is None and run.latent_dim else latent
    moved = jnp.asarray(latent is not None)
    query_y, slice_y, streams, trace = _run(run.model, run.config.compute, scene, given, moved)
    found: dict[str, Any] = {
        "model": run.config.model.label,
        "y": _list(query_y),
        "slice": _list(slice_y),
        "r2": _r2(query_y, scene),
        "inferred": None if trace.latent is None else _list(trace.latent),
        "used": None if latent is None else _list(latent),
        "decoded": None,
        "deviation": None,
        "attention": None,
    }
    if run.probe is not None and streams is not None:
        decoded = np.asarray(streams, np.float64) @ np.asarray(run.probe.weights) + np.asarray(run.probe.intercept)
        found |= {"decoded": _list(decoded.mean(axis=0)), "deviation": _list(decoded.std(axis=0))}
    if trace.attention is not None:
        found["attention"] = np.asarray(trace.attention[:, :, -1], np.float64).round(4).tolist()
    return found


def _r2(predicted: Array, scene: Scene) -> float | None:
    """On this very task: over its queries, against the context's mean."""
    y, mean = np.asarray(scene.query_y, np.float64), float(np.mean(np.asarray(scene.context_y, np.float64)))
    spread = np.sum((y - mean) ** 2)
    r2 = 1 - np.sum((y - np.asarray(predicted, np.float64)) ** 2) / spread if spread > 0 else np.nan
    return float(r2) if np.isfinite(r2) else None


def _ridge_r2(scene: Scene) -> float | None:
    """What ridge regression on the context makes of it (intercept unpenalised)."""
    ridge = fit_ridge(scene.context_x, scene.context_y[:, None], RIDGE_STRENGTH)
    return _r2(ridge(scene.query_x)[:, 0], scene)


def _check_alike(runs: list[Loaded]) -> None:
    for name in ("input_dim", "hidden_dim", "num_modules", "episode_length"):
        values = [getattr(run.config.task, name) for run in runs]
        if len(set(values)) > 1:
            raise InputError(f"task.{name}", f"{values[0]} and {values[1]}", "must be the same for both runs")


def _replacement(run: Loaded, latent: Latent | None, true: list[float] | None) -> Array | None:
    """For the latent that was inferred, if it is to be replaced."""
    if latent is None:
        return None
    size = run.latent_dim
    if size is None:
        raise InputError("latent", latent, f"{run.config.model.label} has none to change")
    if latent == TRUE:
        latent = true
    if latent is None:
        raise InputError("latent", TRUE, "numbers: the task is of another teacher's modules than the model's")
    if isinstance(latent, str) or len(latent) != size:
        raise InputError("latent", latent, f"{size} numbers, or {TRUE}")
    for value in latent:
        check_number("latent", value, least=-1e6, most=1e6)
    return jnp.asarray(latent, jnp.float32)


def _kind(task: Task, run: Loaded, teacher: Teacher) -> str:
    """What a task is to a model: of a stranger's modules, or of its own teacher's in a combination it knows or not."""
    if not np.array_equal(run.teacher.theta, teacher.theta):
        return "control"
    support = run.config.task.support
    return "trained" if task.mask in support.masks else "held_out" if task.mask in support.held_out else "other"


def _list(array: Any) -> list[float]:
    return [float(f"{value:.6g}") for value in np.asarray(array, np.float64).tolist()]
