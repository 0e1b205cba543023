"""Tables of the results of the benchmark, for the terminal."""

from collections.abc import Sequence

from msgspec import UNSET, UnsetType
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from recombine.bench.message import Missing
from recombine.bench.result import ColdStart, Comparison, Limits, MeasuredContender, Scaling
from recombine.terminal.output import result_console

SYMBOLS = {"task.episode_length": "N", "task.input_dim": "d", "model.num_layers": "layers"}


def print_comparison(comparison: Comparison) -> None:
    """One row per contender, then the contenders that are missing or failed, then the limit of the machine."""
    console = result_console()
    title = f"{comparison.model}, N = {comparison.length}, batches of {comparison.batch_size}"
    console.print(Text(title, "bold"))
    measured = comparison.measured()
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("one run", no_wrap=True)
    for column in ("episodes/s", "±", "× plain", "× peer", "of limit", "peak MB"):
        table.add_column(column, justify="right")
    for name, row in measured.items():
        if row.is_one_run:
            table.add_row(name, *_speed(row), _times(row.times_plain), _times(row.times_fastest_peer), *_rest(row))
    table.add_section()
    for name, row in measured.items():
        if not row.is_one_run:  # it answers another question, and has no ratio to a single run
            table.add_row(Text(name, "dim"), *_speed(row), "", "", *_rest(row))
    console.print(table)
    if comparison.fastest_peer is not None:
        console.print(f"× peer: over {comparison.fastest_peer}, the fastest", highlight=False)
    for name, row in measured.items():
        if times := _times(row.times_fast):
            memory = _times_memory(row, measured["fast"])
            console.print(f"{name}: explicit inference, {times} × fast{memory}", highlight=False)
    for name, row in measured.items():
        if row.processes is not None:
            times = _times(row.times_one_process)
            beside = f", {times} × one alone" if times else ""
            console.print(f"{name}: {row.processes} single-threaded runs at once{beside}", highlight=False)
    for name, row in comparison.contenders.items():
        if not isinstance(row, MeasuredContender):
            how = "is missing" if isinstance(row, Missing) else "failed"
            console.print(Text(f"{name} {how}: {row.reason}", "dark_orange"), soft_wrap=True)
    print_limits(comparison.limit)


def print_limits(limits: Limits) -> None:
    console = result_console()
    for name, limit in limits.measured().items():
        shape = " × ".join(map(str, limit.shape))
        rate = limit.flops_per_second.median / 1e9
        chosen = ", the limit" if name == limits.name else ""
        console.print(f"{name} ({shape}): {rate:.0f} GFLOP/s{chosen}", highlight=False)
    console.print()


def print_scaling(scaling: Sequence[Scaling]) -> None:
    """The time of a step at each value of each field, and the fitted exponents."""
    console = result_console()
    console.print(Text("How a step of the fast path grows", "bold"))
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("model", "with", "ms per step"):
        table.add_column(column)
    table.add_column("exponent", justify="right")
    for entry in scaling:
        for sweep in entry.sweeps:
            steps = ", ".join(f"{point.value}: {1e3 * point.seconds:.3g}" for point in sweep.points)
            exponent = "" if sweep.exponent is None else f"{sweep.exponent:.2f}"
            table.add_row(entry.model, SYMBOLS.get(sweep.field, sweep.field), steps, exponent)
    console.print(table)
    for entry in scaling:
        for sweep in entry.sweeps:
            for value, reason in sweep.failures.items():
                console.print(Text(f"{entry.model}, {sweep.field} = {value} failed: {reason}", "dark_orange"))


def print_cold_starts(cold_starts: Sequence[ColdStart]) -> None:
    """The seconds until the first step is done, with an empty and with a filled compilation cache."""
    console = result_console()
    console.print(Text("From the start of a process to the end of its first step, seconds", "bold"))
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("model")
    for column in ("N", "empty cache", "filled cache"):
        table.add_column(column, justify="right")
    for row in cold_starts:
        spreads = (row.seconds.empty, row.seconds.filled)
        cells = ["" if spread is None else f"{spread.median:.1f}" for spread in spreads]
        table.add_row(row.model, str(row.length), *cells)
    console.print(table)
    for row in cold_starts:
        for reason in row.failures:
            console.print(Text(f"{row.model} failed: {reason}", "dark_orange"))


def _speed(row: MeasuredContender) -> tuple[str, str]:
    """The median of the rounds, and half of their range."""
    rate = row.episodes_per_second
    return f"{rate.median:,.0f}", f"{(rate.most - rate.least) / 2 / rate.median:.0%}"


def _times(ratio: float | UnsetType | None) -> str:
    return "" if ratio is None or ratio is UNSET else f"{ratio:.2f}"


def _times_memory(row: MeasuredContender, other: MeasuredContender) -> str:
    """How much more memory than another contender, where both are known."""
    if row.peak_bytes is None or other.peak_bytes is None:
        return ""
    return f", {(row.peak_bytes - other.peak_bytes) / 1e6:+,.0f} MB"


def _rest(row: MeasuredContender) -> tuple[str, str]:
    """The fraction of the limit, and the peak of the memory."""
    fraction, peak = row.fraction_of_limit, row.peak_bytes
    return "" if fraction is None else f"{fraction:.0%}", "" if peak is None else f"{peak / 1e6:,.0f}"
