"""Prints tables in the terminal: supports, scores, verdicts."""

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from recombine.study.summary import ScoreTable
from recombine.study.verdict import NOT_ENOUGH, Part, Verdict
from recombine.study.wording import COMPARISON_SIGNS, VERDICT_MARKS, excluded
from recombine.support.masks import active_modules, format_mask
from recombine.support.split import EVAL_SPLITS
from recombine.support.support import Support
from recombine.terminal.output import result_console

MOST_ROWS = 40
ROOMY, WIDEST = 80, 1000  # columns of a terminal
SHORT = 8  # letters
VERDICT_STYLES = {"holds": "green", "does not hold": "red", "not enough data": "yellow"}


def print_support(support: Support) -> None:
    """The masks, the held-out masks and the components of a support."""
    console = result_console()
    state = "connected" if support.connected else f"disconnected: {len(support.components)} components"
    # Text, not markup: the user chose the name, and it may contain brackets.
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


def print_table(title: str, columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> None:
    """Print a table of numbers. The title is the heading of the first column, which has the names of the rows."""
    console = result_console(highlight=False)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(title)
    for column in columns:
        table.add_column(_heading(column, console), justify="right", no_wrap=True)
    for name, cells in rows.items():
        table.add_row(Text(name), *cells)
    _print_whole(console, table)


def _heading(name: str, console: Console) -> str:
    """The heading of a column of numbers. Where there is little room it has two lines: numbers are never broken."""
    return name if console.width >= ROOMY or len(name) <= SHORT else name.replace("_", "_\n")


def _print_whole(console: Console, table: Table) -> None:
    """Print a table as wide as its numbers need: a narrower terminal folds its lines, and nothing is cut off."""
    needed = Measurement.get(console, console.options.update(width=WIDEST), table).maximum
    before = console.width
    console.width = max(before, needed)
    console.print(table)
    console.width = before


def print_scores(scores: ScoreTable, console: Console | None = None) -> None:
    """Print the R² of models and references: one row each, one column per split."""
    console = console or result_console()
    console.print(Text(scores.title), soft_wrap=True)  # it may contain a path, which must not be broken
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    splits = [split for split in EVAL_SPLITS if any(split in row.r2 for row in scores.models.values())]
    splits = [split for split in splits if any(row.r2[split] is not None for row in scores.models.values())]
    rows = scores.models.values()
    others = [name for name in ("novel", "probe") if any(getattr(row, name) is not None for row in rows)]
    differ = len({row.seeds for row in rows}) > 1  # a mean over one seed beside means over three
    table.add_column("R²")
    for name in (*splits, *others, *(["seeds"] if differ else [])):
        table.add_column(_heading(name, console), justify="right", no_wrap=True)
    for style, group in (("", scores.models), ("dim", scores.references)):
        for name, row in group.items():
            cells = [row.r2.get(split) for split in splits] + [getattr(row, other) for other in others]
            counted = [str(row.seeds or "")] if differ else []
            table.add_row(Text(name, style), *map(r2_text, cells), *counted)
        table.add_section()
    _print_whole(console, table)


def print_verdicts(verdicts: Sequence[Verdict]) -> None:
    """Print each claim with its verdict, and below it the measured statistics."""
    console = result_console(highlight=False)
    empty = [verdict for verdict in verdicts if not any(part.effects for part in _all_parts(verdict))]
    for verdict in verdicts:
        if verdict in empty:
            continue
        table = Table.grid(padding=(0, 1))
        table.add_column(no_wrap=True, width=17)
        table.add_column()
        words = Text.assemble(f"{verdict.number}. {verdict.claim} ", (verdict.note, "dim"))
        mark = Text(f"{VERDICT_MARKS[verdict.state]} {verdict.state}", VERDICT_STYLES[verdict.state])
        table.add_row(mark, words)
        for part in verdict.parts:
            table.add_row("", Text(_part_text(part), "dim"))
        for words, other in verdict.others:
            table.add_row("", Text(f"{words}: {VERDICT_MARKS[other.state]} {other.state}"))
            for part in other.parts:
                table.add_row("", Text(f"  {_part_text(part)}", "dim"))
        console.print(table)
    if empty:
        numbers = ", ".join(str(verdict.number) for verdict in empty)
        which = f"claim{'s' if len(empty) > 1 else ''} {numbers}"
        state = Text("? not enough data", VERDICT_STYLES[NOT_ENOUGH])
        console.print(state, f"{which}: the runs that they compare are missing", soft_wrap=True)


def _all_parts(verdict: Verdict) -> list[Part]:
    return [*verdict.parts, *(part for _, other in verdict.others for part in other.parts)]


def _part_text(part: Part) -> str:
    between = "" if part.low is None else f" [{_effect(part.low)}, {_effect(part.high)}]"
    measured = "–" if part.mean is None else f"{_effect(part.mean)}{between}"
    criterion = f"{COMPARISON_SIGNS[part.comparison]}{part.threshold:g}"
    found = f"{VERDICT_MARKS[part.state]} {part.statistic}: {measured}, criterion {criterion}"
    if part.state == NOT_ENOUGH and part.met is not None:
        found += " (met)" if part.met else " (not met)"
    beyond = excluded(part.comparison, part.bound, part.state)
    return f"{found}; {beyond}" if beyond else found


def r2_text(value: float | None) -> str:
    """R² as text, with a hyphen as minus sign, so that programs can parse it."""
    return "–" if value is None else f"{value:.3f}"


def _effect(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1e}" if 0 < abs(value) < 1e-3 else f"{value:.3f}"
