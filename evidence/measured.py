"""What the scripts that measure trained models have in common: which runs, and where what they find is kept."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from records import HERE

from recombine.cli.serve import demo_directory


def main_runs(model: str, directories: Sequence[str]) -> list[Path]:
    """Of `connected+`: those in src/recombine/demo, and those in directories of runs that still have their parameters.

    A directory goes by the name of its study: `runs/quick`, `runs/paper`.
    """
    found: dict[tuple[str, str], Path] = {}
    for directory in (*sorted(demo_directory().iterdir()), *map(Path, directories)):
        for path in directory.glob(f"{model}-connected+-seed*"):
            found.setdefault((directory.name, path.name), path)
    return [found[key] for key in sorted(found)]


def keep(name: str, rows: Sequence[dict[str, Any]]) -> None:
    """With the rows of runs that were not measured again: their parameters may be nowhere any more."""
    path = HERE / f"{name}.json"
    measured = {_run(row) for row in rows}
    before = [row for row in json.loads(path.read_text()) if _run(row) not in measured] if path.exists() else []
    write_rows(path, sorted([*before, *rows], key=_run))


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")


def _run(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["study"], row.get("model", ""), row["seed"]
