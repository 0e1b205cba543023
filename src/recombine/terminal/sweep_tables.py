"""A sweep's results, for the terminal and for programs."""

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from recombine.jobs.grid import short_names
from recombine.study.sweep_results import SCORE_WORDS, SCORES, Ranked, SweepResults, mean_text, value_text, varied

WIDEST = 10_000  # of a table that no terminal has to show


def results_as_dict(results: SweepResults, top: int) -> dict[str, Any]:
    return {
        "states": results.states,
        "selected_by": results.selected_by,
        "best": [_as_dict(one) for one in results.ranked[:top]],
        "best_in_dist": _as_dict(results.best_in_dist) if results.best_in_dist else None,
        "importance": [
            {"field": one.field, "share": one.share, "means": [{"value": v, "mean": m} for v, m in one.means]}
            for one in results.importance
        ],
    }


def print_results(results: SweepResults, top: int) -> None:
    """How many runs are done, the best configurations, both winners, and what matters."""
    console = Console(highlight=False)
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
            console, "the paper selects by ood; beside it, by in_dist", list(winners.values()), fields, list(winners)
        )
    if results.importance:
        table = Table("field", "share of variance", "mean at each value", box=SIMPLE_HEAD, pad_edge=False)
        for one in results.importance:
            means = ", ".join(f"{value_text(value)}: {mean:.3f}" for value, mean in one.means)
            table.add_row(Text(one.field), f"{one.share:.0%}", Text(means))
        console.print(table)


def print_rows(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """The answer to a query: in a file or a pipe a line for each row, on a terminal folded, and never cut."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in names:
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*(Text(f"{value:.4g}" if isinstance(value, float) else str(value)) for value in row))
    console = Console(highlight=False)
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


def _as_dict(one: Ranked) -> dict[str, Any]:
    scores = {name: mean._asdict() for name, mean in one.scores.items()}
    return {"configuration": one.configuration, "point": one.point, "seeds": one.seeds, **scores}
