"""Functions that the measuring scripts share: finding the trained runs, storing and reading their results."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from records import EVIDENCE, MEASURED

from recombine.storage.source import RunSource, find_runs


def trained_runs(study: str, model: str, support: str = "connected+") -> list[RunSource]:
    """The runs of a study whose parameters were kept. `model` is a name, or * for all."""
    found = []
    for source in find_runs(EVIDENCE / study):
        if Path(source.name).match(f"{model}-{support}-seed*") and source.has_parameters():
            found.append(source)
    return found


def keep(name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Store the rows, and keep the stored rows of runs that were not measured again."""
    path = MEASURED / f"{name}.json"
    measured = {_run(row) for row in rows}
    before = [row for row in json.loads(path.read_text()) if _run(row) not in measured] if path.exists() else []
    write_rows(name, sorted([*before, *rows], key=_run))


def write_rows(name: str, rows: Sequence[dict[str, Any]]) -> None:
    (MEASURED / f"{name}.json").write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")


def read_rows(name: str) -> list[dict[str, Any]]:
    return json.loads((MEASURED / f"{name}.json").read_text())


def _run(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["study"], row.get("model", ""), row["seed"]
