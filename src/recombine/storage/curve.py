"""What a run measured over its steps: thinned, and read further as the run grows."""

import os

from recombine.files import NotAFile, regular_file
from recombine.record.codec import BadRecord, Record, decode
from recombine.record.score import MetricsRow
from recombine.storage.source import METRICS, DirectorySource, RunSource
from recombine.support.split import EVAL_SPLITS

MEASURED = ("loss", *EVAL_SPLITS, "probe")
"""What there are curves of."""
MOST_POINTS = 300
LARGEST = 1 << 28  # bytes that are read of a file
PIECE = 1 << 18  # bytes at a time
LONGEST_ROW = 1 << 22

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


class Curve:
    """Every 2ᵏ-th row of a file of metrics, at most `most` of them, and the last.

    A power of two, so that the rows that are kept of a long file are among those that are kept of a shorter one.
    """

    def __init__(self, source: RunSource, most: int = MOST_POINTS):
        self.source, self.most = source, most
        self._begin(0)

    def _begin(self, inode: int) -> None:
        self.inode, self.offset, self.count, self.every = inode, 0, 0, 1
        self.kept: list[bytes | CurvePoint | None] = []
        self.last: bytes | CurvePoint | None = None

    def read_on(self) -> None:
        """What was written since, whole rows of it. A file that is another by now is read from its beginning."""
        try:
            if isinstance(self.source, DirectorySource):
                self._read_directory(self.source)
            else:
                self._begin(0)
                for row in self.source.read(METRICS, LARGEST).split(b"\n")[:-1]:
                    self._add(row)
        except (OSError, NotAFile):
            self._begin(0)
        self.kept = [_parsed(row) for row in self.kept]
        self.last = _parsed(self.last)

    def _read_directory(self, source: DirectorySource) -> None:
        with regular_file(source.path / METRICS) as (handle, found):
            if not self._is_continued(handle, found):
                self._begin(found.st_ino)
            self._read(handle, min(found.st_size, LARGEST))

    def _is_continued(self, handle: int, found: os.stat_result) -> bool:
        if found.st_ino != self.inode or found.st_size < self.offset:
            return False
        return self.offset == 0 or os.pread(handle, 1, self.offset - 1) == b"\n"

    def _read(self, handle: int, size: int) -> None:
        rest = b""
        while self.offset + len(rest) < size and len(rest) < LONGEST_ROW:
            piece = os.pread(handle, PIECE, self.offset + len(rest))
            if not piece:
                return
            *rows, rest = (rest + piece).split(b"\n")
            for row in rows:
                self._add(row)

    def _add(self, row: bytes) -> None:
        self.offset += len(row) + 1
        if self.count % self.every == 0:
            if len(self.kept) == self.most:
                self.kept, self.every = self.kept[::2], 2 * self.every
            if self.count % self.every == 0:
                self.kept.append(row)
        self.last = row
        self.count += 1

    def points(self) -> list[CurvePoint]:
        """What was measured at each step that is kept."""
        is_last_kept = (self.count - 1) % self.every == 0
        rows = self.kept if is_last_kept else [*self.kept, self.last]
        return [row for row in rows if isinstance(row, CurvePoint)]


def curve_point(row: MetricsRow) -> CurvePoint:
    decoded = row.probe.ood if row.probe is not None else None
    scores = {split: short(row.r2(split)) for split in EVAL_SPLITS}
    return CurvePoint(step=row.step, loss=short(row.loss), probe=short(decoded[-1] if decoded else None), **scores)


def short(value: Number) -> Number:
    """Six digits, which a browser needs no more of; None for what no plot can show."""
    return float(f"{value:.6g}") if value is not None and abs(value) < 1e300 else None


def _parsed(row: bytes | CurvePoint | None) -> CurvePoint | None:
    """A row's numbers, or None for what is no row."""
    if not isinstance(row, bytes):
        return row
    try:
        return curve_point(decode(row, MetricsRow))
    except BadRecord:
        return None
