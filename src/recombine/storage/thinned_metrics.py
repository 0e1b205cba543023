"""The metrics of a run as a thinned curve."""

from recombine.errors import InputError
from recombine.record.codec import BadRecord, Record, decode
from recombine.record.score import MetricsRow
from recombine.storage.integrity import recorded
from recombine.storage.source import RunSource
from recombine.support.split import EVAL_SPLITS

MEASURED = ("loss", *EVAL_SPLITS, "probe")
"""The quantities that have curves."""
MOST_POINTS = 300

Number = float | None


class CurvePoint(Record, frozen=True):
    """The numbers of one row that curves are drawn of."""

    step: int
    loss: Number
    in_dist: Number
    ood: Number
    control: Number
    control_modules: Number
    probe: Number
    """On held-out masks, from the last residual stream."""


def read_curve(source: RunSource, most: int = MOST_POINTS) -> list[CurvePoint]:
    """Every 2ᵏ-th row of a run's metrics, at most `most` of them, and the last; none where they cannot be read.

    A power of two, so that the rows that are kept of a long run are among those that were kept of it when it was
    shorter.
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
    return CurvePoint(step=row.step, loss=short(row.loss), probe=short(decoded[-1] if decoded else None), **scores)


def short(value: Number) -> Number:
    """Six digits, which a browser needs no more of; None for what no plot can show."""
    return float(f"{value:.6g}") if value is not None and abs(value) < 1e300 else None


def _point(row: str) -> CurvePoint | None:
    """A row's numbers, or None for a line that is no row."""
    try:
        return curve_point(decode(row, MetricsRow))
    except BadRecord:
        return None
