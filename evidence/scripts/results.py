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
    measured = {_run(row) for row in rows}
    before = [row for row in _stored().get(name, []) if _run(row) not in measured]
    write_rows(name, sorted([*before, *rows], key=_run))


def write_rows(name: str, rows: Sequence[dict[str, Any]]) -> None:
    parts = [
        f'"{name}": [\n' + ",\n".join(map(json.dumps, found)) + "\n]"
        for name, found in sorted((_stored() | {name: rows}).items())
    ]
    MEASURED.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def read_rows(name: str) -> list[dict[str, Any]]:
    return _stored()[name]


def _stored() -> dict[str, Any]:
    return json.loads(MEASURED.read_text()) if MEASURED.exists() else {}


def _run(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["study"], row.get("model", ""), row["seed"]
