"""Reads the metrics of a run as a curve with a limited number of points."""

from recombine.errors import InputError
from recombine.record.codec import BadRecord, Record, decode
from recombine.record.score import MetricsRow
from recombine.storage.integrity import recorded
from recombine.storage.source import RunSource
from recombine.support.split import EVAL_SPLITS

MEASURED = ("loss", *EVAL_SPLITS, "novel", "probe")
"""The quantities that have curves."""
MOST_POINTS = 300

Number = float | None


class CurvePoint(Record, frozen=True):
    """The numbers of one row of metrics that have curves."""

    step: int
    loss: Number
    in_dist: Number
    ood: Number
    control: Number
    control_modules: Number
    novel: Number
    """R² of the novel part of held-out tasks."""
    probe: Number
    """On held-out masks, from the last residual stream."""


def read_curve(source: RunSource, most: int = MOST_POINTS) -> list[CurvePoint]:
    """Every 2ᵏ-th row of a run's metrics, at most `most` of them, and the last row. Empty if they cannot be read.

    Because the distance is a power of two, a run that has grown keeps a subset of the rows that it had before.
    """
    try:
        rows = recorded(source).metrics.split("\n")[:-1]
    except (OSError, InputError):
        return []
    every = 1
    while -(-len(rows) // every) > most:
        every *= 2
    last = rows[-1:] if (len(rows) - 1) % every else []
    return [point for row in (*rows[::every], *last) if (point := _point(row)) is not None]


def curve_point(row: MetricsRow) -> CurvePoint:
    decoded = row.probe.ood if row.probe is not None else None
    scores = {split: short(row.r2(split)) for split in EVAL_SPLITS}
    novel, probe = None if row.novel is None else row.novel.ood.r2, decoded[-1] if decoded else None
    return CurvePoint(step=row.step, loss=short(row.loss), novel=short(novel), probe=short(probe), **scores)


def short(value: Number) -> Number:
    """A number with six digits, enough for a plot. None if it is too large to draw."""
    return float(f"{value:.6g}") if value is not None and abs(value) < 1e300 else None


def _point(row: str) -> CurvePoint | None:
    """The numbers of a row. None if the line is not a row of metrics."""
    try:
        return curve_point(decode(row, MetricsRow))
    except BadRecord:
        return None
