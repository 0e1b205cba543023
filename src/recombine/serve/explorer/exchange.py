"""The messages to and from the explorer's process, as records."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal

from recombine.checks import check_number, check_seed, check_size
from recombine.errors import InputError
from recombine.record.codec import Record
from recombine.support.masks import Mask

TRUE: Final = "true"
Start = Literal["own", "zero"]
"""Where explicit inference starts: at the latent that the model infers, or at zero."""
MOST_STEPS = 10


class Explicit(Record, frozen=True):
    """The latent after some steps of explicit inference."""

    start: Start
    steps: int

    def __post_init__(self) -> None:
        check_size("steps", self.steps, least=0, most=MOST_STEPS)


Latent = tuple[float, ...] | Literal["true"] | Explicit
"""A replacement for the latent that a model inferred: numbers, `TRUE` for the image of the task's own latent, or one
that explicit inference finds."""
LARGEST_LATENT = 1e6
TaskKind = Literal["trained", "held_out", "other", "control"]
"""The relation of a task to a model. `control`: the model was trained on another teacher."""


class ComposedTask(Record, frozen=True):
    """A task that a visitor composed."""

    weights: tuple[float, ...]
    """One weight per module, 0 for the modules that the task does not use."""
    length: int
    """How many context examples the models see."""
    draw: int = 0
    """The seed of the context, the queries and the line."""
    fresh: int | None = None
    """The seed of a teacher that no run was trained on: the control."""
    teacher_of: int = 0
    """The index of the run whose teacher labels the task."""
    direction: int = 0
    """The direction of the line through input space: an axis from 1, or 0 for a random one."""

    def __post_init__(self) -> None:
        for weight in self.weights:
            check_number("weights", weight, least=0.0)
        if not any(weight > 0 for weight in self.weights):
            raise InputError("weights", list(self.weights), "at least one module must be active")
        check_seed("draw", self.draw)
        if self.fresh is not None:
            check_seed("fresh", self.fresh)

    @property
    def mask(self) -> Mask:
        return tuple(int(weight > 0) for weight in self.weights)


class Inputs(Record, frozen=True):
    """The inputs of a draw, for the first run's teacher or for a fresh one."""

    draw: int
    fresh: int | None = None

    def __post_init__(self) -> None:
        check_seed("draw", self.draw)
        if self.fresh is not None:
            check_seed("fresh", self.fresh)


class Question(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A question about some models: describe them, run them on a task, or hand over what the page needs for it."""

    paths: tuple[bytes, ...]
    """The runs' paths. A path can contain any bytes, so JSON stores it as base64."""
    custom: tuple[str, ...] = ()
    """The custom classes that have to be imported for their models."""
    custom_tasks: tuple[str, ...] = ()
    """The same for the tasks that they were trained on."""
    task: ComposedTask | None = None
    """With a task, the answer is an `Exploration`; without one, it is `Descriptions`."""
    latents: tuple[Latent | None, ...] = ()
    """For each model, a replacement for the latent that it infers."""
    weights: bool = False
    """The answer is a `PageModel`: the first run's."""
    inputs: Inputs | None = None
    """The answer is a `PageScene`."""

    def __post_init__(self) -> None:
        for latent in self.latents:
            if isinstance(latent, tuple):
                check_latent(latent)

    def run_paths(self) -> list[Path]:
        return [Path(os.fsdecode(path)) for path in self.paths]


class Masks(Record, frozen=True):
    """The masks of a support, such as `110000`."""

    trained: tuple[str, ...]
    held_out: tuple[str, ...]


class ModelDescription(Record, frozen=True, kw_only=True):
    """A trained model, described before a task is composed for it."""

    model: str
    step: int
    teacher: int
    """The seed of the teacher that it was trained on."""
    support: str
    modules: int
    masks: Masks
    input_dim: int
    trained_length: int
    """The number of context examples that it was trained with."""
    lengths: tuple[int, ...]
    """The numbers of context examples that can be chosen."""
    latent_dim: int | None
    """The size of the latent, for a model whose latent can be replaced."""
    in_page: bool
    """Whether the page can run the model itself."""


class Descriptions(Record, frozen=True):
    """The answer to a question without a task."""

    models: tuple[ModelDescription, ...]


class ContextLabels(Record, frozen=True):
    """The labels of the context's examples."""

    y: tuple[float, ...]


class TrueLabels(Record, frozen=True):
    """The teacher's labels of the queries, and along the line."""

    y: tuple[float, ...]
    slice: tuple[float, ...]


class Line(Record, frozen=True):
    """The line through input space: its points, and the context's examples projected onto it."""

    t: tuple[float, ...]
    context: tuple[float, ...]


class ModelAnswer(Record, frozen=True, kw_only=True):
    """The predictions of one model, and its intermediate results."""

    kind: TaskKind
    true: tuple[float, ...] | None
    """The latent that a correct inference would give. None if no latent can be replaced, and for the control."""
    model: str
    y: tuple[float, ...]
    """The predictions for the queries."""
    slice: tuple[float, ...]
    """The predictions along the line."""
    r2: float | None
    inferred: tuple[float, ...] | None
    """The latent that the model inferred."""
    used: tuple[float, ...] | None
    """The latent that replaced it."""
    by_step: tuple[float | None, ...] | None
    """R² before the first step of explicit inference and after each, if that was asked for."""
    decoded: tuple[float, ...] | None
    """The teacher's latent, decoded from the latent that the model executes, or, if it has none, from the residual
    stream: the mean over some queries."""
    deviation: tuple[float, ...] | None
    """The standard deviation over those queries."""
    attention: tuple[tuple[tuple[float, ...], ...], ...] | None
    """By layer, head and token: how much the token that is read out attends to each token."""


class Exploration(Record, frozen=True, kw_only=True):
    """The answer to a question with a task."""

    latent: tuple[float, ...]
    """The task's own latent."""
    context: ContextLabels
    truth: TrueLabels
    slice: Line
    ridge: float | None
    """R² of ridge regression on the context."""
    models: tuple[ModelAnswer, ...]


class Refusal(Record, frozen=True):
    """The reason why there is no answer. Any answer can be decoded as a `Refusal`; its `error` is then None."""

    error: str | None = None


def check_latent(latent: Iterable[float]) -> None:
    for value in latent:
        check_number("latent", value, least=-LARGEST_LATENT, most=LARGEST_LATENT)
