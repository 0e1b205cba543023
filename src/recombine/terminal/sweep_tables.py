"""The results of a sweep, as tables in the terminal and as JSON."""

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from recombine.jobs.grid import short_names
from recombine.record.codec import Record, plain
from recombine.study.sweep_results import (
    SCORE_WORDS,
    SCORES,
    Importance,
    Ranked,
    SweepResults,
    mean_text,
    value_text,
    varied,
)
from recombine.terminal.output import result_console

WIDEST = 10_000  # columns of a table in a file or a pipe


class SweepSummary(Record, frozen=True):
    """The output of `recombine sweep results --json`."""

    states: dict[str, int]
    selected_by: str
    best: list[dict[str, Any]]
    best_in_dist: dict[str, Any] | None
    importance: list[Importance]


def summary_of(results: SweepResults, top: int) -> SweepSummary:
    best_in_dist = _flat(results.best_in_dist) if results.best_in_dist else None
    best = [_flat(one) for one in results.ranked[:top]]
    return SweepSummary(results.states, results.selected_by, best, best_in_dist, results.importance)


def print_results(results: SweepResults, top: int) -> None:
    """Print how many runs are done, the best configurations, both winners, and the importance of each field."""
    console = result_console(highlight=False)
    console.print(", ".join(f"{count:,} {state}" for state, count in results.states.items()))
    if not results.ranked:
        console.print("no configuration has all its seeds done yet")
        return
    fields = varied(results)
    best = results.ranked[: min(top, len(results.ranked))]
    _print_ranked(console, f"the best {len(best)} of {len(results.ranked)} configurations", best, fields)
    if results.best_in_dist and results.selected_by == "select_ood":
        winners = {"by ood": results.ranked[0], "by in_dist": results.best_in_dist}
        _print_ranked(
            console, "selected by ood, as in the paper, and by in_dist", list(winners.values()), fields, list(winners)
        )
    if results.importance:
        table = Table("field", "share of variance", "mean at each value", box=SIMPLE_HEAD, pad_edge=False)
        for one in results.importance:
            means = ", ".join(f"{value_text(at.value)}: {at.mean:.3f}" for at in one.means)
            table.add_row(Text(one.field), f"{one.share:.0%}", Text(means))
        console.print(table)


def print_rows(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print the result of a query. In a file or a pipe each row is one line; in a terminal long cells are wrapped."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in names:
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*(Text(f"{value:.4g}" if isinstance(value, float) else str(value)) for value in row))
    console = result_console(highlight=False)
    if not console.is_terminal:
        console.width = WIDEST
    console.print(table)


def _print_ranked(
    console: Console, title: str, ranked: Sequence[Ranked], fields: Sequence[str], names: Sequence[str] = ()
) -> None:
    scores = [name for name in SCORES if any(name in one.scores for one in ranked)]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("winner" if names else "")
    for name in scores:
        table.add_column(SCORE_WORDS[name], justify="right")
    table.add_column("configuration", overflow="fold", min_width=len("configuration"))
    for i, one in enumerate(ranked):
        cells = [mean_text(one.scores[name]).replace(" ", "\n", 1) if name in one.scores else "–" for name in scores]
        values = [f"{short}={value_text(one.point[field])}" for field, short in short_names(fields).items()]
        table.add_row(names[i] if names else str(i + 1), *cells, Text(" ".join(values)))
    console.print(Text(f"\n{title}; R², mean over {seeds_text(ranked)}"))
    console.print(table)


def seeds_text(ranked: Sequence[Ranked]) -> str:
    fewest, most = min(one.seeds for one in ranked), max(one.seeds for one in ranked)
    return f"{fewest} to {most} seeds" if fewest < most else f"{most} seed{'s' * (most > 1)}"


def _flat(one: Ranked) -> dict[str, Any]:
    """The fields of a configuration, with its scores at the same level."""
    fields = plain(one)
    return fields | fields.pop("scores")
