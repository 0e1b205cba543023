"""Prints the table of a screen of readings: `python evidence/scripts/screen.py DIRECTORY`.

The directory, or an archive of it, has a run for each reading. A row has the reading, its R², its novel part and its
controls, at the last snapshot. Runs that are not finished are marked.
"""

import sys
from pathlib import Path

from recombine.config.toml import config_tables, differences
from recombine.storage.reader import StoredRun, read_run
from recombine.storage.source import find_runs
from recombine.study.wording import number
from recombine.terminal.markdown import table

HEAD = (
    *("reading", "changed", "in distribution", "held-out masks", "novel part: slope", "R²", "span error"),
    *("control", "fresh modules", "loss"),
)
SAME = ("compute", "measure", "seed")


def screen(path: Path) -> str:
    """A row for each run: of each preset first the base (a run whose name ends in `base`), then the others by name."""
    runs = [run for run in map(read_run, find_runs(path)) if run.rows]
    if not runs:
        return "no run has been measured yet"
    bases = {_family(run): min((r for r in runs if _family(r) == _family(run)), key=_not_base) for run in runs}
    return table(
        HEAD, [_row(run, bases[_family(run)]) for run in sorted(runs, key=lambda r: (_family(r), r.path.name))]
    )


def _row(run: StoredRun, base: StoredRun) -> tuple[str, ...]:
    last = run.rows[-1]
    name = run.path.name if run.finished else f"{run.path.name} (step {last.step:,})"
    changed = differences(*(config_tables(one.config) for one in (base, run)))
    words = ", ".join(f"{field} = {new}" for field, (_, new) in changed.items() if field.partition(".")[0] not in SAME)
    novel = last.novel.ood if last.novel is not None else None
    of_novel = (novel.slope, novel.r2, novel.span_error) if novel is not None else (None, None, None)
    splits = [last.r2(split) for split in ("in_dist", "ood", "control", "control_modules")]
    values = (*splits[:2], *of_novel, *splits[2:], last.in_dist.mse)
    return (name, words or "–", *map(number, values))


def _family(run: StoredRun) -> tuple[int, int]:
    """The preset of a run: N is a reading, but the sizes of the task and the steps are not."""
    return run.config.task.input_dim, run.num_steps


def _not_base(run: StoredRun) -> tuple[bool, str]:
    return not run.path.name.endswith("base"), run.path.name


if __name__ == "__main__":
    sys.stdout.write(screen(Path(sys.argv[1])) + "\n")
