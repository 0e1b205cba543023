"""The facts of a story about two trained models: their teacher, the test inputs, and their measured scores.

A page needs them beside the weights. Measuring takes a minute, so those of the demo's pair are stored.
"""

from typing import Literal

from recombine.record.codec import Count, MaskName, Real, Record

Answers = Literal["transformer", "inferred", "true", "explicit"]
"""The transformer's, or the hypertransformer's from its own guess of the latent, the true one, or an explicit one."""


class StoryScores(Record, frozen=True):
    """R² on the splits, on each mask, and on the novel part, over the run's evaluation episodes."""

    in_dist: Real
    ood: Real
    novel: Real
    masks: dict[MaskName, Real]


class StoryFacts(Record, frozen=True, kw_only=True):
    """All that a page needs beside the weights. Arrays are little-endian float32 in base64, by rows."""

    modules: Count
    hidden: Count
    inputs: Count
    context: Count
    """The number of examples in a context of training."""
    support: str
    trained: tuple[MaskName, ...]
    held_out: tuple[MaskName, ...]
    theta: str
    a: str
    map_weights: str
    """From the teacher's scaled latent to the model's own."""
    map_offset: str
    queries: str
    span: str
    """The directions of the trained tasks' span at the queries, orthonormal."""
    directions: Count
    novel_share: Real
    """Of the variance of held-out tasks."""
    episodes: Count
    """For each split, that the scores were measured on."""
    scores: dict[Answers, StoryScores]
