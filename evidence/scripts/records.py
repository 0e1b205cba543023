"""Reads the runs in evidence/, stores what scripts measured of them, and formats numbers as table cells."""

import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from recombine import paper
from recombine.storage.reader import StoredRun, read_run
from recombine.storage.source import RunSource, find_runs
from recombine.study.collect import Study, collect, field_value
from recombine.study.series import reference_scores
from recombine.study.wording import with_band

EVIDENCE = Path(__file__).parents[1]
MEASURED = EVIDENCE / "measured.json"
T, H = "transformer", "hypertransformer"
MAIN = paper.DEFAULT_SUPPORT


@cache
def study(name: str) -> Study:
    return collect([EVIDENCE / name])


@cache
def sweep(name: str) -> tuple[StoredRun, ...]:
    """The finished runs of a sweep."""
    runs = (read_run(source) for source in find_runs(EVIDENCE / f"{name}.zip"))
    return tuple(run for run in runs if run.finished)


def chosen(runs: Iterable[StoredRun], model: str, **fields: object) -> list[StoredRun]:
    """The runs of a model whose configuration has these values: `task__episode_length=8`."""
    return [
        run
        for run in runs
        if run.model == model
        and all(field_value(run.config, name.replace("__", ".")) == value for name, value in fields.items())
    ]


def final_r2(run: StoredRun, split: str) -> float:
    """R² on a split at the last snapshot."""
    r2 = run.last.r2(split) if run.last is not None else None
    assert r2 is not None, f"{run.path} has no score on {split}"
    return r2


def final_masks(run: StoredRun) -> dict[str, float]:
    """R² of each held-out mask, at the last snapshot."""
    ood = run.last.ood if run.last is not None else None
    return {mask: score.r2 for mask, score in (ood.masks or {}).items() if score.r2 is not None} if ood else {}


def r2(runs: Iterable[StoredRun], split: str) -> str:
    return with_band([final_r2(run, split) for run in runs])


def reference(runs: Iterable[StoredRun], name: str, split: str) -> str:
    return with_band(reference_scores(runs, name, [split])[0])


def mask_r2(runs: Sequence[StoredRun], mask: str) -> str:
    return with_band([final_masks(run)[mask] for run in runs])


APART = (f"{T}, held out", f"{H}, held out", "difference", "ridge", "latent decoded, held out")


def apart(one: Sequence[StoredRun], other: Sequence[StoredRun]) -> tuple[str, ...]:
    """The cells under the headings APART: both models on held-out masks, with their difference paired by seed."""
    by_seed = {run.seed: final_r2(run, "ood") for run in one}
    differences = [final_r2(run, "ood") - by_seed[run.seed] for run in other if run.seed in by_seed]
    decoded = [_latent_decoded(run) for run in other]
    ridge = reference(other, "ridge", "ood")
    return (r2(one, "ood"), r2(other, "ood"), with_band(differences), ridge, with_band(decoded))


def _latent_decoded(run: StoredRun) -> float:
    probe = run.last.probe if run.last is not None else None
    assert probe is not None
    assert probe.latent is not None
    assert probe.latent.ood is not None
    return probe.latent.ood


def trained_runs(study: str, model: str, support: str = "connected+") -> list[RunSource]:
    """The runs of a study whose parameters were kept. `model` is a name, or * for all."""
    found = []
    for source in find_runs(EVIDENCE / study):
        if Path(source.name).match(f"{model}-{support}-seed*") and source.has_parameters():
            found.append(source)
    return found


def keep(name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Store the rows, and keep the stored rows of runs that were not measured again."""
    measured = {_run(row) for row in rows}
    before = [row for row in _stored().get(name, []) if _run(row) not in measured]
    write_rows(name, sorted([*before, *rows], key=_run))


def write_rows(name: str, rows: Sequence[dict[str, Any]]) -> None:
    parts = [
        f'"{name}": [\n' + ",\n".join(map(json.dumps, found)) + "\n]"
        for name, found in sorted((_stored() | {name: rows}).items())
    ]
    MEASURED.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def read_rows(name: str) -> list[dict[str, Any]]:
    return _stored()[name]


def _stored() -> dict[str, Any]:
    return json.loads(MEASURED.read_text()) if MEASURED.exists() else {}


def _run(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["study"], row.get("model", ""), row["seed"]
