"""A sweep's directory: run directories, and a list of what is wanted of them.

`sweep.jsonl` has a line for each run: its name, its seed, and the values of the fields in which the configurations
differ. It is all that the results need besides the runs' own scores; no configuration has to be read.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from recombine.errors import InputError
from recombine.experiment.grid import SweepRun
from recombine.files import NotAFile, make_directories, read_file, remove_unfinished, replace_file

LIST = "sweep.jsonl"
SELECTION = "selection.json"  # in a run's directory: see `recombine.experiment.selection`
SELECTION_FORMAT = 1
LARGEST = 1 << 28


def write_list(out: Path, runs: Sequence[SweepRun]) -> None:
    """Add the runs to those that are listed already: a sweep can grow by seeds, or by more of its grid."""
    listed = {line["name"]: line for line in read_list(out)} if (out / LIST).exists() else {}
    for run in runs:
        configuration = run.name.removesuffix(f"-seed{run.config.seed}")
        line = {"name": run.name, "configuration": configuration, "seed": run.config.seed, "point": dict(run.point)}
        listed[run.name] = line | {"num_steps": run.config.optimizer.num_steps}
    make_directories(out)
    remove_unfinished(out / LIST)
    replace_file(out / LIST, "".join(json.dumps(line) + "\n" for line in listed.values()).encode())


def read_list(out: Path) -> Iterator[dict[str, Any]]:
    try:
        text = read_file(out / LIST, LARGEST).decode(errors="replace")
        lines = [json.loads(line) for line in text.splitlines()]
    except (NotAFile, ValueError, RecursionError) as error:
        raise InputError("sweep", str(out), f"not a sweep's directory: {LIST} cannot be read ({error})") from error
    for line in lines:
        if not _is_line(line):
            raise InputError("sweep", str(out), f"{LIST} has a line that is not a run's")
        yield line


def _is_line(line: Any) -> bool:
    kinds = {"name": str, "configuration": str, "seed": int, "num_steps": int, "point": dict}
    return (
        isinstance(line, dict)
        and all(isinstance(line.get(name), kind) for name, kind in kinds.items())
        and "/" not in line["name"]
    )


def read_selection(run: Path) -> dict[str, Any] | None:
    """A run's selection scores, or None where there are none (yet, or of this format)."""
    try:
        stored = json.loads(read_file(run / SELECTION, 1 << 16))
    except (NotAFile, ValueError, RecursionError):
        return None
    if not isinstance(stored, dict) or stored.get("format") != SELECTION_FORMAT:
        return None
    for part in ("select", "report"):
        splits = stored.get(part)
        if not isinstance(splits, dict) or not all(_is_score(one) for one in splits.values()):
            return None
    return stored


def _is_score(one: Any) -> bool:
    return one is None or (isinstance(one, dict) and isinstance(one.get("r2"), float | int | None))
