"""What a run measured over its steps: thinned, and read on as it grows."""

import json
import os
from pathlib import Path
from typing import Any

from recombine.files import regular_file
from recombine.serve.run_files import SPLITS, Damage, finite, is_row, number_in

MEASURED = ("loss", *SPLITS, "probe")
"""What there are curves of."""
MOST_POINTS = 300
LARGEST = 1 << 28  # bytes that are read of a file
PIECE = 1 << 18  # bytes at a time
LONGEST_ROW = 1 << 22


class Curve:
    """Every 2ᵏ-th row of a file of metrics, at most `most` of them, and the last.

    A power of two, so that the rows that are kept of a long file are among those that are kept of a shorter one.
    """

    def __init__(self, path: Path, most: int = MOST_POINTS):
        self.path, self.most = path, most
        self._begin(0)

    def _begin(self, inode: int) -> None:
        self.inode, self.offset, self.count, self.every = inode, 0, 0, 1
        self.kept: list[bytes | dict[str, Any] | None] = []
        self.last: bytes | dict[str, Any] | None = None

    def read_on(self) -> None:
        """What was written since, whole rows of it. A file that is another by now is read from its beginning."""
        try:
            with regular_file(self.path) as (handle, found):
                if not self._is_continued(handle, found):
                    self._begin(found.st_ino)
                self._read(handle, min(found.st_size, LARGEST))
        except OSError:
            self._begin(0)
        self.kept = [_parsed(row) for row in self.kept]
        self.last = _parsed(self.last)

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

    def columns(self) -> dict[str, list[Any]]:
        """The steps, and what was measured at each."""
        is_last_kept = (self.count - 1) % self.every == 0
        rows = [row for row in (self.kept if is_last_kept else [*self.kept, self.last]) if isinstance(row, dict)]
        return {name: [row[name] for row in rows] for name in ("steps", *MEASURED)}


def _parsed(row: bytes | dict[str, Any] | None) -> dict[str, Any] | None:
    """A row's numbers, or None for what is no row."""
    if not isinstance(row, bytes):
        return row
    try:
        found = json.loads(row)
    except Damage:
        return None
    if not is_row(found):
        return None
    scores = {split: number_in(found.get(split), "r2") for split in SPLITS}
    return {"steps": found["step"], "loss": finite(found.get("loss")), **scores, "probe": _probe(found.get("probe"))}


def _probe(found: Any) -> float | None:
    """On held-out masks, from the last residual stream."""
    values = found.get("ood") if isinstance(found, dict) else None
    return finite(values[-1]) if isinstance(values, list) and values else None
