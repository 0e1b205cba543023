"""docs/paper_map.md is correct: its symbols, tests and commands exist, and it lists every label in the code."""

import importlib
import re
import shlex
from pathlib import Path

import pytest

from recombine.cli.main import parse

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip().strip("|").split("|")]
    for line in (ROOT / "docs" / "paper_map.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and "`" in line
]


# The labels of the paper's source.
LABELS = {
    "fig:conceptual", "fig:results", "app:hnet_construction", "appfig:test-r2", "app:task_generation",
    "alg:task_sample", "app:connectedness", "app:metric", "app:random-control-task", "tab:task_distribution",
    "app:architecture",
}  # fmt: skip


def test_there_are_rows() -> None:
    assert len(ROWS) > 15
    assert all(len(row) == 5 for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_row(row: list[str]) -> None:
    _, label, symbol, test, command = row
    module, name = symbol.strip("`").split(":")
    implemented = getattr(importlib.import_module(module), name)
    assert implemented is not None
    text = (ROOT / test.strip("`")).read_text(encoding="utf-8")
    assert re.search(rf"\b{name}\b", text), f"{test} does not use {symbol}"
    program, *arguments = shlex.split(command.strip("`"))
    assert program == "recombine"
    parse(arguments)
    assert label in LABELS


def test_every_label_in_the_code_is_on_the_map() -> None:
    labels = set()
    for path in (ROOT / "src").rglob("*.py"):
        labels |= set(re.findall(r"\b(?:app|alg|tab|fig):[\w-]+", path.read_text(encoding="utf-8")))
    assert labels
    assert labels <= {row[1] for row in ROWS}
