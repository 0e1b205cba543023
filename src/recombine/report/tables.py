"""Tables for the terminal."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from recombine.task.mask import active_modules, format_mask
from recombine.task.names import EVAL_SPLITS
from recombine.task.support import Support

if TYPE_CHECKING:  # it would bring JAX to commands that only print a support
    from recombine.report.verdict import Verdict

MOST_ROWS = 40


def print_support(support: Support) -> None:
    """The masks, the held-out masks and the components of a support."""
    console = Console()
    state = "connected" if support.connected else f"disconnected: {len(support.components)} components"
    # Text, not markup: a name is the user's, and may have brackets in it.
    console.print(Text(support.name, "bold"), Text(f" {support.num_modules} modules, {state}"))
    for component in support.components if not support.connected else ():
        console.print(f"  component of modules {', '.join(map(str, component))}", highlight=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("mask")
    table.add_column("modules")
    table.add_column("")
    rows = [(mask, "trained") for mask in support.masks] + [(mask, "held out") for mask in support.held_out]
    for mask, kind in rows[:MOST_ROWS]:
        style = "blue" if kind == "trained" else "dark_orange"
        table.add_row(format_mask(mask), " + ".join(map(str, active_modules(mask))), Text(kind, style))
    console.print(table)
    if len(rows) > MOST_ROWS:
        console.print(f"… and {len(rows) - MOST_ROWS} more masks (all of them with --json)", highlight=False)


def print_scores(
    title: str,
    models: Mapping[str, Mapping[str, Any]],
    references: Mapping[str, Mapping[str, Any]],
    console: Console | None = None,
) -> None:
    """R² of models and references, a row each, a column per split; the models' values are rows of metrics."""
    console = console or Console()
    console.print(Text(title), soft_wrap=True)  # it may name a path, which is not to be broken
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    splits = [split for split in EVAL_SPLITS if any(split in row for row in models.values())]
    decoded = any(row.get("probe") for row in models.values())
    table.add_column("R²")
    for name in (*splits, *(["probe"] if decoded else [])):
        table.add_column(name, justify="right")
    for group in (models, references):
        for name, row in group.items():
            cells = [number(row.get(split, {}).get("r2")) for split in splits]
            probe = row.get("probe") or {}
            cells += [number(probe["ood"][-1] if "ood" in probe else None)] if decoded else []
            table.add_row(Text(name, "" if group is models else "dim"), *cells)
        table.add_section()
    console.print(table)


def print_verdicts(verdicts: Sequence["Verdict"]) -> None:
    """Each claim with its verdict, and below it what was measured."""
    console = Console(highlight=False)
    styles = {"holds": "green", "does not hold": "red", "not enough data": "yellow"}
    marks = {"holds": "✓", "does not hold": "✗", "not enough data": "?"}
    for verdict in verdicts:
        style = styles[verdict.state]
        table = Table.grid(padding=(0, 1))
        table.add_column(no_wrap=True, width=17)
        table.add_column()
        words = Text.assemble(f"{verdict.number}. {verdict.claim} ", (verdict.note, "dim"))
        table.add_row(Text(f"{marks[verdict.state]} {verdict.state}", style), words)
        for part in verdict.parts:
            interval = "" if part.low is None else f" [{_effect(part.low)}, {_effect(part.high)}]"
            measured = "–" if part.mean is None else f"{_effect(part.mean)}{interval}"
            sign = {">=": "≥", "<=": "≤", "within": "within ±"}[part.comparison]
            what = f"{marks[part.state]} {part.statistic}: {measured}, criterion {sign} {part.threshold:g}"
            table.add_row("", Text(what, "dim"))
        console.print(table)


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _effect(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1e}" if 0 < abs(value) < 1e-3 else f"{value:.3f}"
