"""Prints the table of a screen of readings: `python evidence/scripts/screen.py DIRECTORY`.

The directory, or an archive of it, has a run for each reading. A row has the reading, its R², its novel part and its
controls, at the last snapshot. Runs that are not finished are marked.
"""

import sys
from pathlib import Path
from typing import Any

from recombine.config.toml import config_tables, differences
from recombine.storage.reader import StoredRun, read_run
from recombine.storage.source import find_runs
from recombine.study.wording import number
from recombine.terminal.markdown import table

HEAD = (
    *(
        "reading",
        "changed",
        "in distribution",
        "held-out masks",
        "novel part: slope",
        "novel part: R²",
        "novel part: span error",
    ),
    *("control", "fresh modules", "loss"),
)
SAME = ("compute", "measure", "seed")


def screen(path: Path) -> str:
    """A row for each run, those of each preset together: first the base, from which every other run differs least."""
    runs = [run for run in map(read_run, find_runs(path)) if run.rows]
    rows: list[tuple[str, ...]] = []
    for preset in sorted({_preset(run) for run in runs}):
        some = [run for run in runs if _preset(run) == preset]
        base = min(some, key=lambda one: (sum(len(_changed(one, other)) for other in some), one.path.name))
        some.sort(key=lambda one: (one is not base, one.path.name))
        rows += [_row(run, base) for run in some]
    return table(HEAD, rows, left=2) if rows else "no run has been measured yet"


def _row(run: StoredRun, base: StoredRun) -> tuple[str, ...]:
    last = run.rows[-1]
    name = run.path.name if run.finished else f"{run.path.name} (step {last.step:,})"
    words = ", ".join(f"{field} = {new}" for field, new in _changed(base, run).items())
    novel = last.novel.ood if last.novel is not None else None
    of_novel = (novel.slope, novel.r2, novel.span_error) if novel is not None else (None, None, None)
    splits = [last.r2(split) for split in ("in_dist", "ood", "control", "control_modules")]
    values = (*splits[:2], *of_novel, *splits[2:], last.in_dist.mse)
    return (name, words or "–", *map(number, values))


def _changed(base: StoredRun, run: StoredRun) -> dict[str, Any]:
    """The fields in which a run differs from another, with its values."""
    found = differences(config_tables(base.config), config_tables(run.config))
    return {field: new for field, (_, new) in found.items() if field.partition(".")[0] not in SAME}


def _preset(run: StoredRun) -> tuple[int, int]:
    """The sizes that tell presets apart. N is not among them: it is a reading."""
    return run.config.task.input_dim, run.num_steps


if __name__ == "__main__":
    sys.stdout.write(screen(Path(sys.argv[1])) + "\n")
