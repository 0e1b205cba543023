"""Tables of the benchmark for the terminal, from the results as plain data."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

STATUS = {"missing": "is missing", "failed": "failed"}
SYMBOLS = {"task.episode_length": "N", "task.input_dim": "d", "model.num_layers": "layers"}


def print_comparison(comparison: Mapping[str, Any]) -> None:
    """One model at one length: a row per contender, then those that are missing or failed, and the machine's limit."""
    console = Console()
    title = f"{comparison['model']}, N = {comparison['length']}, batches of {comparison['batch_size']}"
    console.print(Text(title, "bold"))
    contenders = comparison["contenders"]
    measured = {name: row for name, row in contenders.items() if row["status"] == "measured"}
    alone = {name: row for name, row in measured.items() if "times_plain" in row}
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("one run", no_wrap=True)
    for column in ("episodes/s", "±", "× plain", "× peer", "of limit", "peak MB"):
        table.add_column(column, justify="right")
    for name, row in alone.items():
        table.add_row(name, *_speed(row), _times(row["times_plain"]), _times(row["times_fastest_peer"]), *_rest(row))
    table.add_section()
    for name, row in measured.items():
        if name not in alone:  # another question, with another answer: no ratio to a single run
            table.add_row(Text(name, "dim"), *_speed(row), "", "", *_rest(row))
    console.print(table)
    if comparison["fastest_peer"] is not None:
        console.print(f"× peer: over {comparison['fastest_peer']}, the fastest", highlight=False)
    for name, row in measured.items():
        if "processes" in row:
            times = row["times_one_process"]
            beside = "" if times is None else f", {times:.2f} × one alone"
            console.print(f"{name}: {row['processes']} single-threaded runs at once{beside}", highlight=False)
    for name, row in contenders.items():
        if row["status"] != "measured":
            console.print(Text(f"{name} {STATUS[row['status']]}: {row['reason']}", "dark_orange"), soft_wrap=True)
    print_limit(comparison["limit"])


def print_limit(limit: Mapping[str, Any]) -> None:
    console = Console()
    for name, row in limit.items():
        if name != "name" and row["flops_per_second"] is not None:
            shape = " × ".join(map(str, row["shape"]))
            rate = row["flops_per_second"]["median"] / 1e9
            chosen = ", the limit" if name == limit["name"] else ""
            console.print(f"{name} ({shape}): {rate:.0f} GFLOP/s{chosen}", highlight=False)
    console.print()


def print_scaling(scaling: Sequence[Mapping[str, Any]]) -> None:
    """Seconds of a step at each value, and the fitted exponent."""
    console = Console()
    console.print(Text("How a step of the fast path grows", "bold"))
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("model", "with", "ms per step"):
        table.add_column(column)
    table.add_column("exponent", justify="right")
    for model in scaling:
        for sweep in model["sweeps"]:
            steps = ", ".join(f"{point['value']}: {1e3 * point['seconds']:.3g}" for point in sweep["points"])
            exponent = "" if sweep["exponent"] is None else f"{sweep['exponent']:.2f}"
            table.add_row(model["model"], SYMBOLS.get(sweep["field"], sweep["field"]), steps, exponent)
    console.print(table)
    for model in scaling:
        for sweep in model["sweeps"]:
            for value, reason in sweep["failures"].items():
                console.print(Text(f"{model['model']}, {sweep['field']} = {value} failed: {reason}", "dark_orange"))


def print_cold_starts(cold_starts: Sequence[Mapping[str, Any]]) -> None:
    """Seconds until the first step is done, by the state of the compilation cache."""
    console = Console()
    console.print(Text("From the start of a process to the end of its first step, seconds", "bold"))
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("model")
    for column in ("N", "empty cache", "filled cache"):
        table.add_column(column, justify="right")
    for row in cold_starts:
        cells = [f"{cell['median']:.1f}" if cell else "" for cell in row["seconds"].values()]
        table.add_row(row["model"], str(row["length"]), *cells)
    console.print(table)
    for row in cold_starts:
        for reason in row["failures"]:
            console.print(Text(f"{row['model']} failed: {reason}", "dark_orange"))


def _speed(row: Mapping[str, Any]) -> tuple[str, str]:
    """The median, and half of the range of the rounds."""
    rate = row["episodes_per_second"]
    return f"{rate['median']:,.0f}", f"{(rate['most'] - rate['least']) / 2 / rate['median']:.0%}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _rest(row: Mapping[str, Any]) -> tuple[str, str]:
    fraction, peak = row.get("fraction_of_limit"), row["peak_bytes"]
    return "" if fraction is None else f"{fraction:.0%}", "" if peak is None else f"{peak / 1e6:,.0f}"
