"""Tables for the terminal."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from recombine.task.mask import active_modules, format_mask
from recombine.task.support import Support

if TYPE_CHECKING:  # it would bring JAX to commands that only print a support
    from recombine.measure.r2 import Score

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
    title: str, models: Mapping[Any, Mapping[Any, "Score"]], references: Mapping[Any, Mapping[Any, "Score"]]
) -> None:
    """R² of models and references, a row each, a column per split."""
    console = Console()
    console.print(Text(title))
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    splits = list(next(iter(models.values())))
    table.add_column("R²")
    for split in splits:
        table.add_column(split, justify="right")
    for group in (models, references):
        for name, scores in group.items():
            label = Text(name, "" if group is models else "dim")
            table.add_row(label, *(f"{scores[split].r2:.3f}" for split in splits))
        table.add_section()
    console.print(table)
