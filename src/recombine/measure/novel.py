"""The novel part of held-out tasks: does a model recombine modules, or blend whole trained tasks?

As a function of its input, a held-out task is mostly a linear combination of trained tasks. A model that blends whole
trained tasks predicts that combination without knowing any module. The rest is the novel part:

    f = (projection on the span of the trained tasks and the constant) + (novel part)

Only a model that combines modules in weight space predicts the novel part. The span is estimated from many trained
tasks: the constant, and the first principal directions of their functions that explain 99.9 % of the variance.

A context is shown with several queries. At these, prediction and truth are each projected on the span, and the
residuals are compared. Both residuals have the same degrees of freedom, whose number cancels in slope and R²; it
matters only for `share` and `span_error`.

With several outputs, each output has a span of its own, all of the same number of directions, and the residuals of all
outputs are pooled. So the span also holds what blends the trained tasks with other weights for each output.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from recombine.config.schema import Config
from recombine.errors import InputError
from recombine.measure.evaluated import EvaluatedModel
from recombine.measure.predict import forward_episodes
from recombine.measure.reference.trained_tasks import TrainedTasks, draw_tasks
from recombine.model.interface import Model
from recombine.numerics import exact_jit
from recombine.record.novel import MaskNovel, NovelScore, NovelScores, pool_novel
from recombine.stream import Stream, stream_key
from recombine.support.masks import format_mask
from recombine.task.episode import Episode, sample_input
from recombine.task.sample import sample_masks
from recombine.task.teacher import Teacher

EXPLAINED, FINER = 0.999, 0.9999  # of the variance of trained tasks, by the span's directions
NOISE = 1e-5  # of these shares, between machines: far above what float32 leaves open
NUM_INPUTS = 4_096  # on which functions are compared
LEAST_QUERIES = 40  # for each context
NUM_CONTEXTS = 200
SMALLEST_VARIANCE = 1e-10  # of the largest; below it is rounding
EPISODES_PER_CONTEXT = 8  # of `measure.episodes`: a run that is measured on few episodes has few contexts, too
LEAST_CONTEXTS = 8


# The last bits of NumPy's linear algebra depend on its number of threads, which differs from process to process.
one_thread = threadpool_limits.wrap(limits=1, user_api="blas")


class NovelTasks(NamedTuple):
    """Held-out tasks, each with a context and several queries, and the span of the trained tasks at these queries."""

    episodes: Episode
    """Context after context, an episode for each query."""
    mask: tuple[str, ...]
    """Of each context."""
    span: Float[np.ndarray, "*out contexts queries directions"]
    """An orthonormal basis, for each context at its queries."""
    finer: Float[np.ndarray, "*out contexts queries finer_directions"]

    @property
    def directions(self) -> tuple[int, int]:
        """The number of directions of the span and of the finer one, besides the constant."""
        return self.span.shape[-1] - 1, self.finer.shape[-1] - 1


def measure_novel(evaluated: EvaluatedModel) -> NovelScores | None:
    """None where no mask is held out."""
    if not evaluated.config.task.support.held_out:
        return None
    tasks = novel_tasks(evaluated.config, evaluated.teacher)
    return novel_scores(tasks, evaluated.forward(tasks.episodes).y)


def novel_scores(tasks: NovelTasks, prediction: ArrayLike) -> NovelScores:
    """The scores of anything that predicts the query's label of every episode."""
    return NovelScores(score_novel(prediction, tasks, tasks.span), score_novel(prediction, tasks, tasks.finer))


def snapshot_tasks(config: Config, teacher: Teacher) -> NovelTasks | None:
    """The tasks of a snapshot: half of `measure.episodes`, a tenth of what the four splits and the probe use."""
    return novel_tasks(config, teacher, config.measure.episodes // 2) if config.task.support.held_out else None


def measure_snapshot_novel(config: Config, model: Model, tasks: NovelTasks) -> NovelScores:
    return NovelScores(score_novel(forward_episodes(config, model, tasks.episodes).y, tasks, tasks.span))


@one_thread
def novel_tasks(
    config: Config, teacher: Teacher, most_episodes: int | None = None, directions: tuple[int, int] | None = None
) -> NovelTasks:
    """The held-out tasks of a run's seed. With a limit, the first of the same tasks.

    The number of queries and the scores depend on the number of directions. Where another machine must find the same
    tasks, it is given the `directions` that the first one found.
    """
    task = config.task
    x = sample_input(stream_key(config.seed, Stream.novel), (NUM_INPUTS, task.input_dim), task.input_distribution)
    trained = draw_tasks(config.seed, teacher, task.support)
    rank, finer_rank = directions or (None, None)
    # The functions have no name here: with 64 outputs they take half a gigabyte, which is free again after this line.
    span, finer = spans_of(np.asarray(_label_inputs(trained, x)), (EXPLAINED, rank), (FINER, finer_rank))
    num_queries = max(LEAST_QUERIES, 2 * finer.shape[-1])
    contexts = sample_masks(
        config.seed, Stream.novel, teacher, task.support.held_out, task.episode_length, NUM_CONTEXTS, step=1
    )
    limit = NUM_CONTEXTS if most_episodes is None else most_episodes // num_queries
    count = max(LEAST_CONTEXTS, min(limit, config.measure.episodes // EPISODES_PER_CONTEXT))
    contexts = jax.tree.map(lambda array: array[:count], contexts)
    masks = tuple(format_mask(task.support.held_out[i]) for i in np.asarray(contexts.mask_index))
    where = np.arange(len(masks) * num_queries).reshape(len(masks), num_queries) % NUM_INPUTS
    episodes = _with_queries(teacher, contexts, x, jnp.asarray(where))
    return NovelTasks(episodes, masks, *(np.linalg.qr(s[..., where, :])[0] for s in (span, finer)))


def span_of(
    functions: Float[np.ndarray, "tasks inputs *out"], explained: float, rank: int | None = None
) -> Float[np.ndarray, "*out inputs directions"]:
    """The constant, and the first principal directions of functions, as many as explain a share of their variance.

    With several outputs there is a span for each; the output that needs most directions determines their number.
    A `rank` that is given must explain that share up to the noise between machines.
    """
    return spans_of(functions, (explained, rank))[0]


def spans_of(
    functions: Float[np.ndarray, "tasks inputs *out"], *wanted: tuple[float, int | None]
) -> list[Float[np.ndarray, "*out inputs directions"]]:
    """`span_of` for several shares of the variance, each with a rank or None."""
    outputs = [_principal(one) for one in (functions[None] if functions.ndim == 2 else np.moveaxis(functions, -1, 0))]
    found = []
    for explained, rank in wanted:
        chosen = _rank(outputs, explained, rank)
        spans = [one.span(chosen) for one in outputs]
        found.append(spans[0] if functions.ndim == 2 else np.stack(spans))
    return found


class Principal(NamedTuple):
    """Functions with one output, and their principal directions as combinations of them, the largest first.

    The functions stay a view in float32. Centred copies of all 64 outputs in float64 would take a gigabyte.
    """

    functions: Float[np.ndarray, "tasks inputs"]
    variances: Float[np.ndarray, "tasks"]
    combinations: Float[np.ndarray, "tasks tasks"]

    def rank(self, explained: float) -> int:
        """The number of directions that explain a share of the variance."""
        whole = self.variances.sum()
        return int(np.searchsorted(np.cumsum(self.variances) / whole, explained)) + 1 if whole > 0 else 1

    def span(self, rank: int) -> Float[np.ndarray, "inputs directions"]:
        """With fewer directions of its own than `rank`, the rest are drawn: the same ones everywhere."""
        own = self.variances[:rank] > SMALLEST_VARIANCE * self.variances[0]
        scale = np.sqrt(np.where(own, self.variances[:rank], 1.0))
        directions = _centred(self.functions).T @ self.combinations[:, :rank] / scale
        directions[:, ~own] = np.random.default_rng(0).normal(size=(len(directions), (~own).sum()))
        return np.column_stack([np.full(len(directions), len(directions) ** -0.5), directions])


def _principal(functions: Float[np.ndarray, "tasks inputs"]) -> Principal:
    centred = _centred(functions)
    return Principal(functions, *(found[..., ::-1] for found in np.linalg.eigh(centred @ centred.T)))


def _centred(functions: Float[np.ndarray, "tasks inputs"]) -> Float[np.ndarray, "tasks inputs"]:
    functions = np.asarray(functions, np.float64)
    return functions - functions.mean(axis=1, keepdims=True)


def _rank(outputs: Sequence[Principal], explained: float, given: int | None) -> int:
    """The number of directions with which every output's explain a share of its variance."""
    least, found, most = (max(one.rank(explained + noise) for one in outputs) for noise in (-NOISE, 0.0, NOISE))
    rank = found if given is None else given
    if not least <= rank <= most:
        expected = f"{found} directions explain {explained:.2%} of the variance of trained tasks"
        raise InputError("directions", rank, expected)
    return rank


@one_thread
def score_novel(
    prediction: ArrayLike, tasks: NovelTasks, span: Float[np.ndarray, "*out contexts queries directions"]
) -> NovelScore:
    """The score of one prediction for each query of each context, in float64."""
    truth = _by_context(tasks.episodes.query_y, span)
    error = _by_context(prediction, span) - truth
    novel, novel_error = novel_part(tasks, span), _outside(error, span)
    freedom = span.shape[-2] - span.shape[-1]
    outputs = tuple(range(truth.ndim - 2))  # no axis where a label is a number
    sums = Sums(
        variance=np.var(truth, axis=-1, ddof=1).mean(axis=outputs),
        novel=(np.sum(novel**2, axis=-1) / freedom).mean(axis=outputs),
        predicted=(np.sum((novel + novel_error) * novel, axis=-1) / freedom).mean(axis=outputs),
        novel_error=(np.sum(novel_error**2, axis=-1) / freedom).mean(axis=outputs),
        error=np.mean(error**2, axis=-1).mean(axis=outputs),
    )
    masks = {}
    for mask in sorted(set(tasks.mask), reverse=True):
        here = np.asarray([mask == other for other in tasks.mask])
        masks[mask] = MaskNovel(int(here.sum()), *(float(values[here].mean()) for values in sums))
    pooled = pool_novel(masks, masks)
    assert pooled is not None, "a held-out task is no constant"
    return NovelScore(
        directions=span.shape[-1] - 1,
        slope_error=_standard_error(sums.predicted, sums.novel),
        r2_error=_standard_error(sums.novel_error, sums.novel),
        masks=masks,
        **pooled._asdict(),
    )


def novel_part(
    tasks: NovelTasks, span: Float[np.ndarray, "*out contexts queries directions"]
) -> Float[np.ndarray, "*out contexts queries"]:
    """What the span leaves of the labels."""
    return _outside(_by_context(tasks.episodes.query_y, span), span)


def _by_context(labels: ArrayLike, span: np.ndarray) -> Float[np.ndarray, "*out contexts queries"]:
    """A label of each episode, in the order of the span's axes."""
    *outputs, contexts, queries, _ = span.shape
    rows = np.asarray(labels, np.float64).reshape(contexts, queries, *outputs)
    return np.moveaxis(rows, (0, 1), (-2, -1))


class Sums(NamedTuple):
    """Mean squares over the queries and the outputs of each context; the fields are those of `MaskNovel`."""

    variance: np.ndarray
    novel: np.ndarray
    predicted: np.ndarray
    novel_error: np.ndarray
    error: np.ndarray


def _outside(values: Float[np.ndarray, "*out contexts queries"], span: np.ndarray) -> np.ndarray:
    """What the span's directions leave of the values at each context's queries."""
    inside = np.einsum("...cqk,...cpk,...cp->...cq", span, span, values, optimize=True)
    return values - inside


def _standard_error(numerator: np.ndarray, denominator: np.ndarray) -> float:
    """Of Σ numerator / Σ denominator, over contexts: that of a ratio estimator, to first order."""
    count, ratio = len(numerator), numerator.sum() / denominator.sum()
    residual = numerator - ratio * denominator
    return float(np.sqrt(count / (count - 1) * np.sum(residual**2)) / denominator.sum())


@exact_jit
def _label_inputs(tasks: TrainedTasks, x: Float[Array, "inputs d"]) -> Float[Array, "tasks inputs *out"]:
    return tasks.labels(x)


@exact_jit
def _with_queries(
    teacher: Teacher, contexts: Episode, x: Float[Array, "inputs d"], where: Int[Array, "contexts queries"]
) -> Episode:
    """An episode for each query: the context, and the query's input and label."""
    query_x = x[where]
    query_y = jax.vmap(teacher.label)(contexts.latent, query_x)
    repeated = jax.tree.map(lambda array: jnp.repeat(array, where.shape[1], axis=0), contexts)
    return Episode(
        repeated.context_x,
        repeated.context_y,
        query_x.reshape(-1, x.shape[1]),
        query_y.reshape(-1, *query_y.shape[2:]),
        repeated.latent,
        repeated.mask_index,
    )
