"""Explicit inference at test time: improve a latent on the context, through the model's own `execute`.

It tells inference from execution: if the modules can express a task, a latent that solves it can be found by least
squares, whatever the model itself infers. Each step is a damped Gauss–Newton step. A step that does not fit the context
better is not taken, and the next one is damped more (Levenberg–Marquardt). Steps start from the model's own latent,
and from zero, which needs no trained inference at all.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from msgspec import structs

from recombine.config.model import EXPLICIT_STEPS
from recombine.config.schema import Config
from recombine.measure.evaluated import EvaluatedModel
from recombine.measure.latent.module_recovery import execute_many
from recombine.measure.novel import NovelTasks, novel_tasks, score_novel
from recombine.measure.predict import in_chunks
from recombine.measure.r2 import score, score_by_mask
from recombine.model.interface import LatentModel
from recombine.model.layer.generated import gauss_newton_step
from recombine.numerics import exact_jit
from recombine.record.codec import Count, NumModules, Real, Record
from recombine.record.novel import NovelScore
from recombine.record.score import Score, SplitScore
from recombine.support.split import CONTROL_SPLITS, Split
from recombine.task.episode import Episode
from recombine.task.evaluation import active_modules_episodes, evaluation_episodes, evaluation_splits

MOST_EPISODES = 2_000  # the first of each split: a step takes as long as a model's own inference
FIRST_DAMPING, AFTER_BETTER, AFTER_WORSE = 0.01, 0.3, 3.0


class StartScores(Record, frozen=True, kw_only=True, omit_defaults=True):
    """The scores after the last step, from one start."""

    in_dist: SplitScore
    ood: SplitScore | None = None
    control: SplitScore
    control_modules: SplitScore | None = None
    active_modules: dict[NumModules, Score]
    novel: NovelScore | None = None
    by_step: tuple[Real, ...]
    """R² before the first step and after each, on held-out masks (in distribution if no mask is held out)."""


class ExplicitInference(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Explicit inference with a number of steps."""

    steps: Count
    own: StartScores
    """From the latent that the model infers."""
    zero: StartScores | None = None
    """From zero; None if the model cannot execute a latent of zeros."""


class Inferred(NamedTuple):
    """What explicit inference finds for a batch of episodes, before the first step and after each."""

    latent: Float[Array, "E after latent"]
    y: Float[Array, "E after *out"]
    """The predictions at the query."""


def measure_explicit_inference(evaluated: EvaluatedModel, steps: int = EXPLICIT_STEPS) -> ExplicitInference | None:
    """None for a model that cannot execute a latent."""
    model = evaluated.latent_model
    if model is None:
        return None
    config, teacher = evaluated.config, evaluated.teacher
    splits: dict[Split, Episode] = {
        split: _first(evaluation_episodes(config, teacher, split)[1]) for split in evaluation_splits(config)
    }
    by_count = {str(k): _first(episodes) for k, episodes in active_modules_episodes(config, teacher)}
    tasks = novel_tasks(config, teacher) if config.task.support.held_out else None

    def scores(from_zero: bool) -> StartScores | None:
        return _scores(evaluated, model, steps, from_zero, splits, by_count, tasks)

    own = scores(from_zero=False)
    assert own is not None
    return ExplicitInference(steps=steps, own=own, zero=scores(from_zero=True))


def _first(episodes: Episode) -> Episode:
    return jax.tree.map(lambda array: array[:MOST_EPISODES], episodes)


def _scores(
    evaluated: EvaluatedModel,
    model: LatentModel,
    steps: int,
    from_zero: bool,
    splits: Mapping[Split, Episode],
    by_count: Mapping[str, Episode],
    tasks: NovelTasks | None,
) -> StartScores | None:
    def infer(episodes: Episode) -> Inferred:
        start = evaluated.forward(episodes).latent
        assert start is not None
        return infer_explicitly(model, jnp.zeros_like(start) if from_zero else start, episodes, steps)

    def last(episodes: Episode) -> Score:
        return score(infer(episodes).y[:, -1], episodes)

    found: dict[Split, np.ndarray] = {split: np.asarray(infer(episodes).y) for split, episodes in splits.items()}
    if not np.isfinite(found["in_dist"]).all():
        return None
    shown: Split = "ood" if "ood" in splits else "in_dist"
    return StartScores(
        **{split: _split_score(evaluated.config, split, y[:, -1], splits[split]) for split, y in found.items()},
        active_modules={k: last(episodes) for k, episodes in by_count.items()},
        novel=None if tasks is None else _novel_score(model, infer, tasks),
        by_step=tuple(score(y, splits[shown]).r2 for y in found[shown].swapaxes(0, 1)),
    )


def _split_score(config: Config, split: Split, y: np.ndarray, episodes: Episode) -> SplitScore:
    masks = None if split in CONTROL_SPLITS else score_by_mask(y, episodes, config.task.support.masks_of(split))
    return SplitScore(**structs.asdict(score(y, episodes)), masks=masks)


def _novel_score(model: LatentModel, infer: Callable[[Episode], Inferred], tasks: NovelTasks) -> NovelScore:
    """The score on the novel part. A context's latent is inferred once, and executed on each of its queries."""
    num_queries = tasks.span.shape[-2]
    contexts = jax.tree.map(lambda array: array[::num_queries], tasks.episodes)
    latent = jnp.repeat(infer(contexts).latent[:, -1], num_queries, axis=0)
    return score_novel(execute_many(model, latent, tasks.episodes.query_x), tasks, tasks.span)


@exact_jit
def infer_explicitly(model: LatentModel, start: Float[Array, "E latent"], episodes: Episode, steps: int) -> Inferred:
    """Improve the latent of every episode, step by step, and predict its query."""

    def one(x: Array, y: Array, query_x: Array, start: Array) -> Inferred:
        latents = improve_latent(model, start, x, y, steps)
        return Inferred(latents, jax.vmap(model.execute, in_axes=(0, None))(latents, query_x))

    inputs = (episodes.context_x, episodes.context_y, episodes.query_x, start)
    return in_chunks(lambda chunk: jax.vmap(one)(*chunk), inputs)


def improve_latent(
    model: LatentModel,
    start: Float[Array, "latent"],
    x: Float[Array, "context d"],
    y: Float[Array, "context *out"],
    steps: int,
) -> Float[Array, "after latent"]:
    """The latent before the first step, and after each."""

    def predict(z: Float[Array, "latent"]) -> Float[Array, "context *out"]:
        return jax.vmap(model.execute, in_axes=(None, 0))(z, x)

    def predict_twice(z: Float[Array, "latent"]) -> tuple[Float[Array, "rows"], Float[Array, "context *out"]]:
        labels = predict(z)
        return labels.ravel(), labels  # one is differentiated, the other returned with the Jacobian

    def step(state: tuple, _: None) -> tuple[tuple, Float[Array, "latent"]]:
        z, damping = state
        jacobian, labels = jax.jacfwd(predict_twice, has_aux=True)(z)
        candidate = z + gauss_newton_step(jacobian, (y - labels).ravel(), damping)
        better = jnp.sum((y - predict(candidate)) ** 2) < jnp.sum((y - labels) ** 2)
        z = jnp.where(better, candidate, z)
        return (z, damping * jnp.where(better, AFTER_BETTER, AFTER_WORSE)), z

    _, latents = jax.lax.scan(step, (start, jnp.asarray(FIRST_DAMPING, start.dtype)), length=steps)
    return jnp.concatenate([start[None], latents])
