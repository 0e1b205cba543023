"""The two models of a story: are they comparable, and what do they score?"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from recombine.config.schema import Config
from recombine.config.task import VARIATIONS, TaskConfig
from recombine.errors import InputError
from recombine.measure.evaluated import EvaluatedModel
from recombine.measure.latent.explicit_inference import infer_explicitly
from recombine.measure.latent.module_recovery import execute_many, fit_map, scaled_latent
from recombine.measure.novel import EXPLAINED, NUM_INPUTS, novel_tasks, one_thread, score_novel, span_of
from recombine.measure.r2 import score, score_by_mask
from recombine.measure.reference.trained_tasks import draw_tasks
from recombine.model.hypertransformer import Hypertransformer
from recombine.record.novel import pool_novel
from recombine.run.load import TrainedModel
from recombine.story.facts import MOST_STEPS, Start, StoryFacts, StoryScores
from recombine.story.pack import check_computable, packed_floats
from recombine.stream import Stream, stream_key
from recombine.task.episode import Episode, sample_input
from recombine.task.interface import Teacher
from recombine.task.teacher import HypernetworkTeacher

NUM_QUERIES = 64  # test inputs in the page: a transformer needs milliseconds for each
MOST_MASKS = 28  # the strip of the page has no room for more


class StoryPair(NamedTuple):
    """A transformer and a hypertransformer that were trained on the same tasks."""

    transformer: TrainedModel
    hypertransformer: TrainedModel

    @property
    def config(self) -> Config:
        return self.hypertransformer.config


def story_pair(models: list[TrainedModel]) -> StoryPair:
    """The two models in their order. Refuses models that cannot be compared, or that the page cannot compute."""
    kinds = [model.config.model.label for model in models]
    if sorted(kinds) != ["hypertransformer", "transformer"]:
        raise InputError("runs", ", ".join(kinds), "a page shows one transformer and one hypertransformer")
    pair = StoryPair(*sorted(models, key=lambda one: one.config.model.label, reverse=True))
    first, second = pair.transformer.config, pair.config
    for name in ("input_dim", "hidden_dim", "episode_length", "support", *VARIATIONS):
        if getattr(first.task, name) != getattr(second.task, name):
            values = f"{_shown(first.task, name)} and {_shown(second.task, name)}"
            raise InputError(f"task.{name}", values, "must be the same for both runs")
    if (first.seed, first.teacher_seed) != (second.seed, second.teacher_seed):
        raise InputError("seed", f"{first.seed} and {second.seed}", "must be the same: both need the same teacher")
    support = second.task.support
    if not support.held_out:
        raise InputError("task.support", support.name, "holds out no mask; the story needs held-out masks")
    if len(support.masks) + len(support.held_out) > MOST_MASKS:
        count = len(support.masks) + len(support.held_out)
        raise InputError("task.support", support.name, f"has {count} masks; a page shows at most {MOST_MASKS}")
    for config in (first, second):
        check_computable(config)
    return pair


def _shown(task: TaskConfig, name: str) -> str:
    return task.support.name if name == "support" else str(getattr(task, name))


def measure_facts(pair: StoryPair) -> StoryFacts:
    """Measure both models, and the hypertransformer with other latents than its own guess."""
    config, teacher = pair.config, EvaluatedModel(*pair.hypertransformer[:2]).teacher
    evaluated = [EvaluatedModel(one.config, one.model) for one in pair]
    hyper, model = evaluated[1], pair.hypertransformer.model
    assert isinstance(model, Hypertransformer)
    assert isinstance(teacher, HypernetworkTeacher)
    assert hyper.fit_output.latent is not None
    to_inferred = fit_map(scaled_latent(teacher, hyper.fit_episodes.latent), hyper.fit_output.latent)

    def execute_true(episodes: Episode) -> ArrayLike:
        z = jnp.asarray(to_inferred(scaled_latent(teacher, episodes.latent)), jnp.float32)
        return execute_many(model, z, episodes.query_x)

    def execute_explicit(start: Start, episodes: Episode) -> np.ndarray:
        """The predictions before the first step and after each."""
        own = hyper.forward(episodes).latent
        assert own is not None
        latent = jnp.zeros_like(own) if start == "zero" else own
        return np.asarray(infer_explicitly(model, latent, episodes, MOST_STEPS).y).T

    tasks, support = novel_tasks(config, teacher), config.task.support
    scored = {"in_dist": hyper.episodes["in_dist"], "ood": hyper.episodes["ood"], "novel": tasks.episodes}

    def scores(predictions: Mapping[str, ArrayLike]) -> StoryScores:
        masks = {}
        for split in ("in_dist", "ood"):
            masks |= score_by_mask(predictions[split], scored[split], support.masks_of(split))
        novel = score_novel(predictions["novel"], tasks, tasks.span)
        return StoryScores(
            score(predictions["in_dist"], scored["in_dist"]).r2,
            score(predictions["ood"], scored["ood"]).r2,
            novel.r2,
            {mask: one.r2 for mask, one in masks.items() if one.r2 is not None},
            {mask: pooled.r2 for mask in novel.masks if (pooled := pool_novel(novel.masks, [mask]))},
        )

    def measure(predict: Callable[[Episode], ArrayLike]) -> StoryScores:
        return scores({name: predict(episodes) for name, episodes in scored.items()})

    def measure_steps(start: Start) -> tuple[StoryScores, ...]:
        found = {name: execute_explicit(start, episodes) for name, episodes in scored.items()}
        return tuple(scores({name: y[step] for name, y in found.items()}) for step in range(MOST_STEPS + 1))

    x, span = _queries(config, teacher)
    return StoryFacts(
        modules=support.num_modules,
        hidden=config.task.hidden_dim,
        inputs=config.task.input_dim,
        context=config.task.episode_length - 1,
        support=support.name,
        trained=tuple("".join(map(str, mask)) for mask in support.masks),
        held_out=tuple("".join(map(str, mask)) for mask in support.held_out),
        theta=packed_floats(teacher.theta),
        a=packed_floats(teacher.a),
        map_weights=packed_floats(to_inferred.weights),
        map_offset=packed_floats(to_inferred.offset),
        queries=packed_floats(x),
        span=packed_floats(span),
        directions=span.shape[1],
        novel_share=score_novel(tasks.episodes.query_y, tasks, tasks.span).share,
        episodes=config.measure.episodes,
        novel_tasks=len(tasks.mask),
        scores={
            "transformer": measure(lambda episodes: evaluated[0].forward(episodes).y),
            "inferred": measure(lambda episodes: hyper.forward(episodes).y),
            "true": measure(execute_true),
        },
        explicit={"own": measure_steps("own"), "zero": measure_steps("zero")},
    )


@one_thread
def _queries(config: Config, teacher: Teacher) -> tuple[np.ndarray, np.ndarray]:
    """The test inputs of the page, and the span of the trained tasks at them, as `recombine.measure.novel` has it."""
    x = sample_input(stream_key(config.seed, Stream.novel), (NUM_INPUTS, config.task.input_dim))
    functions = np.asarray(draw_tasks(config.seed, teacher, config.task.support).labels(x), np.float64)
    span = span_of(functions, EXPLAINED)[:NUM_QUERIES]
    return np.asarray(x[:NUM_QUERIES]), np.linalg.qr(span)[0]
