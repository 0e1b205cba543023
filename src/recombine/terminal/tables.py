"""Prints tables in the terminal: supports, scores, verdicts."""

from collections.abc import Iterable, Mapping, Sequence

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
WIDEST = 1000  # columns of a terminal
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
    lines = [(Text(name), list(cells)) for name, cells in rows.items()]
    _print_whole(result_console(highlight=False), title, columns, [lines])


Section = list[tuple[Text, list[str]]]
"""Rows of a table, each with its name and its cells."""


def _print_whole(console: Console, title: str, columns: Sequence[str], sections: Sequence[Section]) -> None:
    """Print a table without breaking or cutting a number.

    If the terminal is too narrow, the table is set tighter. If that does not help, it becomes several tables, each with
    some of the columns. In a pipe nobody sees the width, so there it stays one table.
    """
    whole = _make_table(title, columns, sections, range(len(columns)))
    tables, before = [(whole, _width(console, whole))], console.width
    if console.is_terminal and tables[0][1] > before:
        tables = [
            # The title is text: it may go over several lines.
            (
                _make_table(title, columns, sections, part, tight=True),
                _width(console, _make_table("", columns, sections, part, tight=True)),
            )
            for part in _parts(columns, sections, console)
        ]
    for table, width in tables:
        console.width = max(before, width)
        console.print(table)
        console.width = before


def _parts(columns: Sequence[str], sections: Sequence[Section], console: Console) -> list[list[int]]:
    """The columns of each table: as many as fit beside the names of the rows, and at least one."""
    parts: list[list[int]] = [[]]
    for column in range(len(columns)):
        wider = _make_table("", columns, sections, [*parts[-1], column], tight=True)
        if parts[-1] and _width(console, wider) > console.width:
            parts.append([])
        parts[-1].append(column)
    return parts


def _make_table(
    title: str, columns: Sequence[str], sections: Sequence[Section], shown: Iterable[int], tight: bool = False
) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 0 if tight else 1))
    table.add_column(title)
    shown = list(shown)
    for column in shown:
        heading = columns[column].replace("_", "_\n") if tight and len(columns[column]) > SHORT else columns[column]
        table.add_column(heading, justify="right", no_wrap=True)
    for section in sections:
        for name, cells in section:
            table.add_row(name, *(cells[column] for column in shown))
        table.add_section()
    return table


def _width(console: Console, table: Table) -> int:
    return Measurement.get(console, console.options.update(width=WIDEST), table).maximum


def print_scores(scores: ScoreTable, console: Console | None = None) -> None:
    """Print the R² of models and references: one row each, one column per split."""
    console = console or result_console()
    console.print(Text(scores.title), soft_wrap=True)  # it may contain a path, which must not be broken
    splits = [split for split in EVAL_SPLITS if any(split in row.r2 for row in scores.models.values())]
    splits = [split for split in splits if any(row.r2[split] is not None for row in scores.models.values())]
    rows = scores.models.values()
    others = [name for name in ("novel", "probe") if any(getattr(row, name) is not None for row in rows)]
    differ = len({row.seeds for row in rows}) > 1  # a mean over one seed beside means over three
    columns = [*splits, *others, *(["seeds"] if differ else [])]
    sections: list[Section] = []
    for style, group in (("", scores.models), ("dim", scores.references)):
        sections.append([])
        for name, row in group.items():
            cells = [row.r2.get(split) for split in splits] + [getattr(row, other) for other in others]
            counted = [str(row.seeds or "")] if differ else []
            sections[-1].append((Text(name, style), [*map(r2_text, cells), *counted]))
    _print_whole(console, "R²", columns, sections)


def print_verdicts(verdicts: Sequence[Verdict]) -> None:
    """Print each claim with its verdict, and below it the measured statistics."""
    console = result_console(highlight=False)
    empty = [verdict for verdict in verdicts if not verdict.measured]
    for verdict in verdicts:
        if verdict in empty:
            continue
        table = Table.grid(padding=(0, 1))
        table.add_column(no_wrap=True, width=17)
        table.add_column()
        words = Text.assemble(f"{verdict.number}. {verdict.claim} ", (verdict.remark, "dim"))
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
