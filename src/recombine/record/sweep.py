"""The records of a sweep: `sweep.jsonl`, with a line for each run, and the `selection.json` of each run."""

from typing import Any

from recombine.record.codec import Count, Record, Seed
from recombine.record.score import Score


class SweepLine(Record, frozen=True):
    """A run of a sweep: its name, its configuration without the seed, and the values of the fields that vary."""

    name: str
    configuration: str
    seed: Seed
    point: dict[str, Any]
    num_steps: Count


class SelectionScores(Record, frozen=True, omit_defaults=True):
    """The scores in distribution, and out of distribution if masks are held out."""

    in_dist: Score | None = None
    ood: Score | None = None


class Selection(Record, frozen=True):
    """The scores that a sweep selects by, and those that it reports (from the last row of metrics)."""

    format: int
    step: Count
    select: SelectionScores
    report: SelectionScores
