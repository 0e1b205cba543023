"""The page of one run: its configuration, its scores and its log, as tables of text that the page shows."""

from collections.abc import Iterator

from recombine.config.toml import Tables, config_tables
from recombine.errors import InputError
from recombine.files import NotAFile
from recombine.record.codec import BadRecord, Record, decode
from recombine.record.run_state import Start, TimingRow
from recombine.record.score import MetricsRow, Score
from recombine.record.seal import unseal
from recombine.serve.run_summary import LONGEST_TEXT, SeenRun
from recombine.storage.reader import LARGEST_SCORECARD, StoredRun, read_environment, read_run
from recombine.storage.source import SCORECARD, TIMING, RunSource
from recombine.study.wording import REFERENCE_WORDS, SPLIT_WORDS

END_OF_TIMING = 1 << 16  # bytes
MOST_STARTS = 50
MODEL = "the model"


class Table(Record, frozen=True):
    """A table of the page. A cell that is a number is a score; None is a score that was not measured."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str | float | None, ...], ...]


class RunDetail(Record, frozen=True, kw_only=True):
    """Everything that the page of a run shows, besides its curves."""

    fields: dict[str, str]
    """The configuration: every field, and its value as text."""
    scores: tuple[Table, ...]
    log: tuple[str, ...]


class _Card(Record, frozen=True):
    """The part of `scorecard.json` that is shown. The whole record would import JAX into the server."""

    step: int
    num_parameters: int
    active_modules: dict[str, Score]


def read_detail(seen: SeenRun) -> RunDetail:
    """Read the run's files. What cannot be read is a line of the log."""
    if seen.config is None:
        return RunDetail(fields={}, scores=(), log=(seen.summary.error or "cannot be read",))
    fields = {name: cell_text(value) for name, value in flat(config_tables(seen.config)).items()}
    try:
        run = read_run(seen.source, scorecard=False)
    except Exception as error:  # a file can contain anything
        why = error.expected if isinstance(error, InputError) else type(error).__name__
        return RunDetail(fields=fields, scores=(), log=(why[:LONGEST_TEXT],))
    return RunDetail(fields=fields, scores=tuple(_scores(run, seen.source)), log=tuple(_log(run, seen.source)))


def flat(tables: Tables, prefix: str = "") -> Tables:
    """Nested tables as one: {'model.num_layers': 2}."""
    found: Tables = {}
    for name, value in tables.items():
        whole = f"{prefix}{name}"
        found |= flat(value, f"{whole}.") if isinstance(value, dict) else {whole: value}
    return found


def cell_text(value: object) -> str:
    """A field's value as text."""
    if isinstance(value, list | tuple):
        return ", ".join(cell_text(one) for one in value)
    return str(value).lower() if isinstance(value, bool) else "–" if value is None else str(value)


def _scores(run: StoredRun, source: RunSource) -> Iterator[Table]:
    if run.last is None:
        return
    row, card = run.last, _card(run.last, source)
    references = run.references or {}
    splits = [split for split in SPLIT_WORDS if row.split(split) is not None]
    novel = None if row.novel is None else row.novel.ood.r2
    lines: list[tuple[str | float | None, ...]] = [(MODEL, *(row.r2(split) for split in splits), novel)]
    for name, words in REFERENCE_WORDS.items():
        if (of := references.get(name)) is not None:
            found = None if of.novel is None else of.novel.ood.r2
            lines.append((words, *(of.r2(split) for split in splits), found))
    head = ("R²", *(SPLIT_WORDS[split] for split in splits), "novel part")
    yield Table(f"Scores at step {row.step:,}, beside the references", head, tuple(lines))
    for split, scores in row.splits().items():
        if scores.masks:
            by_mask = tuple((mask, score.r2, str(score.episodes)) for mask, score in scores.masks.items())
            yield Table(f"By mask: {SPLIT_WORDS.get(split, split)}", ("mask", "R²", "episodes"), by_mask)
    if row.probe is not None and row.probe.in_dist:
        layers = ["embedding", *(f"block {i}" for i in range(1, len(row.probe.in_dist)))]
        ood = row.probe.ood or (None,) * len(layers)
        by_layer = tuple(zip(layers, row.probe.in_dist, ood, strict=True))
        yield Table("The latent, decoded by a linear probe: R²", ("after", "in_dist", "ood"), by_layer)
    if card is not None:
        by_count = tuple((count, score.r2) for count, score in card.active_modules.items())
        title = f"By active modules ({card.num_parameters:,} parameters)"
        yield Table(title, ("modules of the task", "R²"), by_count)


def _card(row: MetricsRow, source: RunSource) -> _Card | None:
    """The stored scorecard of the last row. None if there is none, or if it cannot be read."""
    try:
        card = unseal(source.read(SCORECARD, LARGEST_SCORECARD), _Card).value
    except (NotAFile, OSError, BadRecord):
        return None
    return card if card.step == row.step else None


def _log(run: StoredRun, source: RunSource) -> Iterator[str]:
    """The starts of the run, the changes that were accepted, its pace, its end, and notes."""
    environment = read_environment(source)
    for start in environment.starts[-MOST_STARTS:]:
        yield _start_line(start)
    for change in environment.changes[-MOST_STARTS:]:
        fields = "; ".join(f"{name}: {old} → {new}" for name, (old, new) in change.fields.items())
        yield f"step {change.step:,}: resumed with {fields}"[:LONGEST_TEXT]
    timing = _last_timing(source)
    if timing is not None:
        pace = "" if timing.steps_per_second is None else f"{timing.steps_per_second:,.1f} steps per second, "
        yield f"step {timing.step:,}: {pace}{timing.peak_memory_bytes >> 20:,} MB of memory at most"
    step = 0 if run.last is None else run.last.step
    yield f"step {step:,} of {run.num_steps:,}: {run.state}" + (f": {run.status.error}" if run.status.error else "")
    yield from run.notes


def _start_line(start: Start) -> str:
    made = start.identity
    software = [f"Recombine {made.recombine}", f"JAX {made.jax}", *([f"Python {start.python}"] if start.python else [])]
    machine = f"{made.devices} × {made.device} ({made.platform}), {made.threads} threads"
    commit = [f"commit {start.commit[:12]}"] if start.commit else []
    command = [" ".join(start.command)] if start.command else []
    return f"step {start.step:,}: started; {', '.join([*software, *commit, machine, *command])}"[: 2 * LONGEST_TEXT]


def _last_timing(source: RunSource) -> TimingRow | None:
    try:
        lines = source.read_end(TIMING, END_OF_TIMING).decode(errors="replace").split("\n")[:-1]
        return decode(lines[-1], TimingRow) if lines else None
    except (NotAFile, OSError, BadRecord):
        return None
