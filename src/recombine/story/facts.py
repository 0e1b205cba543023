"""The facts of a story about two trained models: their teacher, the test inputs, and their measured scores.

A page needs them beside the weights. Measuring takes a minute, so those of the demo's pair are stored.
"""

from typing import Literal

from recombine.record.codec import Count, MaskName, Real, Record

Answers = Literal["transformer", "inferred", "true"]
"""The transformer's, or the hypertransformer's from its own guess of the latent, or from the true one."""
Start = Literal["own", "zero"]
"""Where explicit inference starts: at the hypertransformer's own guess, or at zero."""
MOST_STEPS = 4  # of explicit inference, in the page


class StoryScores(Record, frozen=True):
    """R² on the splits and on the novel part, over all masks and for each mask, on the run's evaluation episodes."""

    in_dist: Real
    ood: Real
    novel: Real
    masks: dict[MaskName, Real]
    novel_masks: dict[MaskName, Real]
    """R² on the novel part of each held-out mask; trained masks have no novel part."""


class StoryFacts(Record, frozen=True, kw_only=True):
    """All that a page needs beside the weights. Arrays are little-endian float32 in base64, by rows."""

    modules: Count
    hidden: Count
    inputs: Count
    context: Count
    """The number of examples that a context has in training."""
    support: str
    trained: tuple[MaskName, ...]
    held_out: tuple[MaskName, ...]
    theta: str
    a: str
    map_weights: str
    """The weights of the map from the teacher's scaled latent to the model's own."""
    map_offset: str
    queries: str
    span: str
    """The directions of the trained tasks' span at the queries, orthonormal."""
    directions: Count
    novel_share: Real
    """The novel part's share of the variance of held-out tasks."""
    episodes: Count
    """The number of episodes of each split on which the scores were measured."""
    novel_tasks: Count
    """The number of tasks on which the scores on the novel part were measured."""
    scores: dict[Answers, StoryScores]
    explicit: dict[Start, tuple[StoryScores, ...]]
    """The hypertransformer's scores before the first step of explicit inference, and after each."""
