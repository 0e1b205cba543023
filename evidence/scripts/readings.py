"""Do the verdicts depend on how the paper is read? The verdicts of `quick`, with one reading changed at a time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import msgspec

from recombine.record.score import MetricsRow, Score
from recombine.storage.reader import StoredRun
from recombine.study.collect import Study, field_value
from recombine.study.verdict import NOT_ENOUGH, Verdict, judge
from recombine.study.wording import VERDICT_MARKS
from recombine.terminal.markdown import table

MODELS = ("transformer", "hypertransformer")
CLAIMS = range(1, 7)  # the seventh is computed, not trained
FIELDS = {
    "model.causal": "causal attention",
    "model.position_bias": "T5's bias: {}",
    "model.scale_scores": "scores not scaled, as T5's",
    "model.final_norm": "no LayerNorm before the readout",
    "optimizer.warmup_steps": "warm-up of {} steps",
    "optimizer.final_fraction": "cosine to {} of the learning rate",
    "optimizer.decay": "weight decay on {} parameters",
    "model.base_weights": "a θ̂₀ beside the model's modules",
    "model.init_scale": "model's modules at {} times their scale at the start",
    "model.unit_norm": "model's W divided by its norm, as the teacher's is",
}
Row = tuple[str, ...]


def readings_table(
    quick: Study, swept: Sequence[StoredRun], taught: Sequence[StoredRun], longer: Sequence[StoredRun]
) -> str:
    """A row for each reading. A verdict that differs from that of our reading is bold."""
    base = [run for run in quick.runs if run.model in MODELS]
    rows: list[Row] = []
    for words, runs in alternatives(base, swept, taught, longer):
        seeds = sorted({run.seed for run in runs})
        twins = judge(Study(tuple(run for run in base if run.seed in seeds)))
        rows.append((words, str(len(seeds)), *_cells(judge(Study(tuple(runs))), twins)))
    ours = [("**our choice**", str(len(quick.seeds)), *_cells(judge(Study(tuple(base))), None))]
    one = [run for run in base if run.seed == 0]
    if any(row[1] == "1" for row in rows):
        ours.append(("**our choice**", "1", *_cells(judge(Study(tuple(one))), None)))
    return table(("reading", "seeds", *(f"claim {number}" for number in CLAIMS)), [*ours, *rows], left=2)


def _cells(verdicts: Sequence[Verdict], twins: Sequence[Verdict] | None) -> Iterator[str]:
    for i, verdict in enumerate(verdicts[: len(CLAIMS)]):
        if all(part.mean is None for part in verdict.parts):
            yield "–"
            continue
        mark = _mark(verdict)
        means = " / ".join("–" if part.mean is None else two_digits(part.mean) for part in verdict.parts)
        text = f"{mark} {means}"
        yield f"**{text}**" if twins and _mark(twins[i]) != mark else text


def _mark(verdict: Verdict) -> str:
    """The verdict's; in brackets, where there is none, whether all the means meet their criteria."""
    if verdict.state != NOT_ENOUGH:
        return VERDICT_MARKS[verdict.state]
    return "(✓)" if all(part.met in (True, None) for part in verdict.parts) else "(✗)"


def two_digits(value: float) -> str:
    return f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")


def alternatives(
    base: Sequence[StoredRun],
    swept: Sequence[StoredRun],
    taught: Sequence[StoredRun],
    longer: Sequence[StoredRun],
) -> Iterator[tuple[str, list[StoredRun]]]:
    """Each alternative reading, with the runs on which it is judged."""
    for n in sorted({_length(run) for run in longer} - {_length(base[0])}):
        yield f"N = {n}", [run for run in longer if _length(run) == n]
    yield "R² by the contexts' variances", [_with_variance(run) for run in base]
    for field, words in FIELDS.items():
        yield from _swept(field, words, base, swept)
    yield "control: a fresh teacher", [_with_row(run, _fresh_teacher) for run in base]
    for kind, words in (("each", "probe on each of the context's tokens"), ("mean", "probe on the mean of its tokens")):
        yield words, [_with_row(run, _probe_tokens(run, kind)) for run in base]
    one_teacher = [run for run in taught if run.config.teacher_seed == 0]
    if one_teacher:
        yield "one teacher for all seeds", one_teacher


def _length(run: StoredRun) -> int:
    return run.config.task.episode_length


def _swept(
    field: str, words: str, base: Sequence[StoredRun], swept: Sequence[StoredRun]
) -> Iterator[tuple[str, list[StoredRun]]]:
    """The runs of a reading that changes one field. Models that do not have the field keep their usual runs."""
    known = {(run.model, run.support, run.seed): run for run in base}
    default = {field_value(run.config, field) for run in base} - {None}
    for value in sorted({field_value(run.config, field) for run in swept} - {None} - default, key=str):
        changed = {(run.model, run.support, run.seed): run for run in swept if field_value(run.config, field) == value}
        seeds = {seed for *_, seed in changed}
        whole = {key: run for key, run in known.items() if key[2] in seeds} | changed
        concerned = {model for model, *_ in changed}
        missing = [key for key in whole if key[0] in concerned and key not in changed]
        yield words.format(value), [run for key, run in whole.items() if key not in missing]


def _with_row(run: StoredRun, change: Callable[[MetricsRow], MetricsRow]) -> StoredRun:
    return replace(run, rows=(*run.rows[:-1], change(run.rows[-1])))


def _by_variance(score: Score) -> Score:
    return msgspec.structs.replace(score, r2=score.r2_variance)


def _with_variance(run: StoredRun) -> StoredRun:
    """The run with the other denominator of R², for the model and its references."""

    def read(row: MetricsRow) -> MetricsRow:
        return msgspec.structs.replace(row, **{split: _by_variance(score) for split, score in row.splits().items()})

    references = {}
    for name, scores in (run.references or {}).items():
        splits = {split: score for split in run.rows[-1].splits() if (score := scores.split(split)) is not None}
        changed = {split: _by_variance(score) for split, score in splits.items()}
        references[name] = msgspec.structs.replace(scores, **changed)
    return replace(_with_row(run, read), references=references)


def _fresh_teacher(row: MetricsRow) -> MetricsRow:
    return msgspec.structs.replace(row, control_modules=row.control)


def _probe_tokens(run: StoredRun, kind: str) -> Callable[[MetricsRow], MetricsRow]:
    """A function that replaces the probe of the last token by that of the context's tokens."""
    tokens = None if run.scorecard is None else run.scorecard.probe_tokens

    def read(row: MetricsRow) -> MetricsRow:
        if tokens is None or row.probe is None:
            return row
        return msgspec.structs.replace(row, probe=msgspec.structs.replace(row.probe, ood=getattr(tokens, kind).ood))

    return read
