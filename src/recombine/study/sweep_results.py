"""The results of a sweep: a table of its runs, the best configurations, and the importance of each field.

Selecting and reporting use different episodes: `select_ood` and `select_in_dist` are scores on episodes for selection
alone; `ood` and `in_dist` are those of the last row of metrics.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from recombine.errors import InputError
from recombine.jobs.grid import value_name
from recombine.record.codec import Record
from recombine.record.sweep import SweepLine
from recombine.storage.reader import last_row, read_selection, read_status
from recombine.storage.source import ArchiveSource, DirectorySource, RunSource
from recombine.storage.sweep_list import LIST, in_archive, read_list
from recombine.study.interval import band

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

FieldValue = str | int | float | bool | None
SCORES = ("select_ood", "select_in_dist", "ood", "in_dist")
COLUMNS = ("name", "configuration", "seed", "num_steps", "state", "step", *SCORES)


class Mean(Record, frozen=True):
    """A mean over seeds, and the band around it."""

    mean: float
    low: float | None
    high: float | None


class Ranked(Record, frozen=True):
    """A configuration all of whose seeds are done."""

    configuration: str
    point: dict[str, FieldValue]
    seeds: int
    scores: dict[str, Mean]
    """The mean of each of SCORES; a score that no run has is left out."""


class MeanAt(Record, frozen=True):
    """The mean score of all configurations in which the field has this value."""

    value: FieldValue
    mean: float


class Importance(Record, frozen=True):
    """The share of the variance between configurations that a field explains by itself, and the mean at each value."""

    field: str
    share: float
    means: tuple[MeanAt, ...]


class SweepResults(NamedTuple):
    """The results of a sweep so far."""

    states: dict[str, int]
    fields: list[str]
    ranked: list[Ranked]
    """The best first, by the mean of `select_ood` (of `select_in_dist` if no mask is held out)."""
    selected_by: str
    best_in_dist: Ranked | None
    importance: list[Importance]


def sweep_table(out: Path) -> "tuple[DuckDBPyConnection, list[str]]":
    """A table `runs` in memory, with a column for each field that the sweep varies; also returns those fields."""
    try:
        import duckdb
    except ImportError as error:
        raise InputError("sweep", str(out), "the results need DuckDB: pip install 'recombine[sweep]'") from error
    lines = list(read_list(out))
    if not lines:
        raise InputError("sweep", str(out), "no run is listed in it yet")
    fields = list(dict.fromkeys(name for line in lines for name in line.point))
    rows = [_row(out, line) for line in lines]
    names = [*COLUMNS, *(f"p{i}" for i in range(len(fields)))]
    columns = [*zip(*rows, strict=True), *(_comparable([line.point.get(f) for line in lines]) for f in fields)]
    parameters = {name: list(column) for name, column in zip(names, columns, strict=True)}
    titles = [*COLUMNS, *fields]
    if len({title.casefold() for title in titles}) < len(titles):  # DuckDB would silently rename one of them
        raise InputError(
            "sweep", str(out), f"two columns of the table would have the same name; the fields in {LIST}: {fields}"
        )
    selected = ", ".join(f"unnest(${n}) AS {_quoted(title)}" for n, title in zip(names, titles, strict=True))
    connection = duckdb.connect()
    try:
        connection.execute(f"CREATE TABLE runs AS SELECT {selected}", parameters)
    except (duckdb.Error, OverflowError) as error:
        what = f"the fields in its {LIST} cannot form a table ({' '.join(str(error).split())})"
        raise InputError("sweep", str(out), what) from error
    connection.execute("SET enable_external_access = false")  # a query may not read other files
    for score in SCORES:  # a column that is all NULL has no type
        connection.execute(f"ALTER TABLE runs ALTER {score} TYPE DOUBLE")
    return connection, fields


def _quoted(name: str) -> str:
    """A name quoted for SQL."""
    return '"{}"'.format(name.replace('"', '""'))


def varied(results: SweepResults) -> list[str]:
    """The fields that have more than one value among the ranked configurations."""
    return [f for f in results.fields if len({repr(one.point[f]) for one in results.ranked}) > 1]


def value_text(value: Any) -> str:
    """A field's value as text; – if the configuration does not have the field."""
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def mean_text(mean: Mean) -> str:
    return f"{mean.mean:.3f}" + ("" if mean.low is None else f" [{mean.low:.3f}, {mean.high:.3f}]")


SCORE_WORDS = {
    "select_ood": "ood, selecting",
    "select_in_dist": "in_dist, selecting",
    "ood": "ood",
    "in_dist": "in_dist",
}


def sweep_results(out: Path) -> SweepResults:
    """Rank the configurations whose runs are done, and count the runs by state."""
    connection, fields = sweep_table(out)
    states = dict(connection.execute("SELECT state, count(*) FROM runs GROUP BY state ORDER BY state").fetchall())
    by_ood = connection.execute("SELECT count(select_ood) FROM runs").fetchall()[0][0]
    selected_by = "select_ood" if by_ood else "select_in_dist"
    ranked = list(_ranked(connection, fields, selected_by))
    best_in_dist = next(_ranked(connection, fields, "select_in_dist"), None)
    importance = [found for field in fields if (found := _importance(ranked, field, selected_by))]
    return SweepResults(
        states, fields, ranked, selected_by, best_in_dist, sorted(importance, key=lambda one: -one.share)
    )


def _row(out: Path, line: SweepLine) -> tuple[Any, ...]:
    """The row of a run in the table. For a run that is done, a single small file is read."""
    source = _source(out, line.name)
    head = (line.name, line.configuration, line.seed, line.num_steps)
    stored = read_selection(source)
    if stored is not None and stored.value.step == line.num_steps:
        select, report = stored.value.select, stored.value.report
        scores = (select.ood, select.in_dist, report.ood, report.in_dist)  # as in SCORES
        return (*head, "done", line.num_steps, *(score and score.r2 for score in scores))
    status = read_status(source)
    if status is None:
        return (*head, "waiting", 0, None, None, None, None)
    row = last_row(source)
    reported = (None, None) if row is None else (row.r2("ood"), row.r2("in_dist"))
    return (*head, status.state, status.step, None, None, *reported)


def _source(out: Path, name: str) -> RunSource:
    inside = in_archive(out, name)
    return DirectorySource(out / name) if inside is None else ArchiveSource(*inside)


def _comparable(values: Sequence[Any]) -> list[Any]:
    """The values of a column, which must have one type: mixed types become text."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) == 1 and kinds <= {str, int, float, bool}:
        return list(values)
    return [None if value is None else value_name(value) for value in values]


def _ranked(connection: "DuckDBPyConnection", fields: Sequence[str], by: str) -> Iterator[Ranked]:
    names = ", ".join(f"any_value({_quoted(name)})" for name in fields)
    scores = ", ".join(f"list({name}) FILTER ({name} IS NOT NULL)" for name in SCORES)
    query = f"""
        SELECT configuration, count(*), {scores}{", " + names if fields else ""} FROM runs
        GROUP BY configuration HAVING bool_and(state = 'done') AND count({by}) = count(*)
        ORDER BY avg({by}) DESC, configuration
    """
    for configuration, seeds, *rest in connection.execute(query).fetchall():
        found, point = rest[: len(SCORES)], rest[len(SCORES) :]
        means = {
            name: Mean(fmean(values), *(band(values) or (None, None)))
            for name, values in zip(SCORES, found, strict=True)
            if values
        }
        yield Ranked(configuration, dict(zip(fields, point, strict=True)), seeds, means)


def _importance(ranked: Sequence[Ranked], field: str, by: str) -> Importance | None:
    """The importance of a field. None if it has only one value, or if all configurations score the same."""
    groups: dict[Any, list[float]] = {}
    for one in ranked:
        groups.setdefault(one.point[field], []).append(one.scores[by].mean)
    values = [value for group in groups.values() for value in group]
    if len(groups) < 2:
        return None
    mean = sum(values) / len(values)
    total = sum((value - mean) ** 2 for value in values)
    means = {value: sum(group) / len(group) for value, group in groups.items()}
    between = sum(len(groups[value]) * (found - mean) ** 2 for value, found in means.items())
    ordered = tuple(MeanAt(value, found) for value, found in sorted(means.items(), key=_order))
    return Importance(field, between / total, ordered) if total > 0 else None


def _order(entry: tuple[Any, float]) -> tuple[str, Any]:
    value, _ = entry
    return type(value).__name__ if isinstance(value, str | bool | None) else "", str(value) if value is None else value
