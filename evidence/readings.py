"""What the other readings of the paper do to its claims: the verdicts of `quick` with one reading exchanged."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from records import HERE

from recombine.figure.panels import COMPARED, outside_both
from recombine.study.collect import RunRecord, Study
from recombine.study.series import lookup
from recombine.study.verdict import HOLDS, NOT_ENOUGH, Verdict, judge
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
    "model.base_weights": "a θ̂₀ beside the student's modules",
    "model.init_scale": "student's modules at {} times their scale at the start",
    "model.unit_norm": "student's W divided by its norm, as the teacher's is",
}
Row = tuple[str, ...]


def readings_table(
    quick: Study, swept: Sequence[RunRecord], taught: Sequence[RunRecord], longer: Sequence[RunRecord]
) -> str:
    """A row for each reading; a verdict that differs from that of the reading we take is bold."""
    base = [run for run in quick.runs if run.model in MODELS]
    rows: list[Row] = []
    for words, runs in alternatives(base, swept, taught, longer):
        seeds = sorted({run.seed for run in runs})
        twins = judge(Study(tuple(run for run in base if run.seed in seeds)))
        rows.append((words, str(len(seeds)), *_cells(judge(Study(tuple(runs))), twins)))
    ours = [("**what we take**", str(len(quick.seeds)), *_cells(judge(Study(tuple(base))), None))]
    one = [run for run in base if run.seed == 0]
    if any(row[1] == "1" for row in rows):
        ours.append(("**what we take**", "1", *_cells(judge(Study(tuple(one))), None)))
    return table(("reading", "seeds", *(f"claim {number}" for number in CLAIMS)), [*ours, *rows], left=2)


def _cells(verdicts: Sequence[Verdict], twins: Sequence[Verdict] | None) -> Iterator[str]:
    for i, verdict in enumerate(verdicts[: len(CLAIMS)]):
        if all(part.mean is None for part in verdict.parts):
            yield "–"
            continue
        mark = {HOLDS: "✓", NOT_ENOUGH: "?"}.get(verdict.state, "✗")
        means = " / ".join("–" if part.mean is None else two_digits(part.mean) for part in verdict.parts)
        text = f"{mark} {means}"
        yield f"**{text}**" if twins and twins[i].state != verdict.state else text


def two_digits(value: float) -> str:
    return f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")


def alternatives(
    base: Sequence[RunRecord],
    swept: Sequence[RunRecord],
    taught: Sequence[RunRecord],
    longer: Sequence[RunRecord],
) -> Iterator[tuple[str, list[RunRecord]]]:
    """Each other reading, with the runs that it leaves a judge."""
    for n in sorted({run.config["task"]["episode_length"] for run in longer} - {_length(base[0])}):
        yield f"N = {n}", [run for run in longer if _length(run) == n]
    yield "R² by the contexts' variances", [_with_variance(run) for run in base]
    for field, words in FIELDS.items():
        yield from _swept(field, words, base, swept)
    yield "control: fresh modules, the readout kept", [_with_row(run, _kept_readout) for run in base]
    yield "panel D on the 7 masks outside both supports", [_outside_both(run) for run in base]
    for kind, words in (("each", "probe on each of the context's tokens"), ("mean", "probe on the mean of its tokens")):
        yield words, [_with_row(run, _probe_tokens(run, kind)) for run in base]
    one_teacher = [run for run in taught if run.config["teacher_seed"] == 0]
    if one_teacher:
        yield "one teacher for all seeds", one_teacher


def _length(run: RunRecord) -> int:
    return run.config["task"]["episode_length"]


def _swept(
    field: str, words: str, base: Sequence[RunRecord], swept: Sequence[RunRecord]
) -> Iterator[tuple[str, list[RunRecord]]]:
    """A model that the reading does not concern is the one we have."""
    section, _, name = field.partition(".")
    known = {(run.model, run.support, run.seed): run for run in base}
    default = {lookup(run.config, section, name) for run in base} - {None}
    for value in sorted({lookup(run.config, section, name) for run in swept} - {None} - default, key=str):
        changed = {
            (run.model, run.support, run.seed): run for run in swept if lookup(run.config, section, name) == value
        }
        seeds = {seed for *_, seed in changed}
        whole = {key: run for key, run in known.items() if key[2] in seeds} | changed
        concerned = {model for model, *_ in changed}
        missing = [key for key in whole if key[0] in concerned and key not in changed]
        yield words.format(value), [run for key, run in whole.items() if key not in missing]


def _with_row(run: RunRecord, change: Callable[[dict[str, Any]], dict[str, Any]]) -> RunRecord:
    return replace(run, rows=(*run.rows[:-1], run.rows[-1] | change(run.rows[-1])))


def _with_variance(run: RunRecord) -> RunRecord:
    def read(score: Any) -> Any:
        if isinstance(score, dict):
            changed = {name: read(value) for name, value in score.items()}
            return changed | {"r2": score["r2_variance"]} if "r2_variance" in score else changed
        return score

    return replace(run, rows=(*run.rows[:-1], read(run.rows[-1])), references=read(run.references))


def _kept_readout(row: dict[str, Any]) -> dict[str, Any]:
    return {"control": row["control_modules"]}


def _outside_both(run: RunRecord) -> RunRecord:
    """On the masks that neither support of panel D trains on: model, ridge and oracle."""
    if run.support not in COMPARED:
        return run

    def read(masks: dict[str, Any]) -> dict[str, Any]:
        return {"ood": {"r2": outside_both(masks)}}

    found = {
        one["reference"]: read(one["masks"])
        for one in reference_masks()
        if (one["support"], one["seed"]) == (run.support, run.seed)
    }
    references = (run.references or {}) | {name: found[name] for name in ("ridge", "oracle")}
    return replace(_with_row(run, lambda row: read(row["ood"]["masks"])), references=references)


def reference_masks() -> list[dict[str, Any]]:
    """What reference_masks.py found."""
    return json.loads((HERE / "reference_masks.json").read_text())


def _probe_tokens(run: RunRecord, kind: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    card = run.scorecard
    return lambda row: {"probe": row["probe"] | {"ood": card["probe_tokens"][kind]["ood"]}} if card else {}
