"""Runs as tidy tables: one row for each run, step and split, in pandas or polars; scores as text and HTML."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from typing import Any, Literal

from recombine.checks import check_choice
from recombine.errors import InputError
from recombine.html_table import html_table
from recombine.storage.reader import StoredRun
from recombine.study.summary import ScoreTable
from recombine.support.split import EVAL_SPLITS

Library = Literal["pandas", "polars"]
LIBRARIES: tuple[Library, ...] = ("pandas", "polars")

Row = dict[str, str | int | float | None]


def run_rows(run: StoredRun, by_mask: bool = False) -> Iterator[Row]:
    """The rows of a run. `probe` is the R² of the latent decoded from the last residual stream, `novel` the R² on the
    novel part of held-out tasks; both are None where they are not measured."""
    head: Row = {"run": run.path.name, "model": run.model, "support": run.support, "seed": run.seed}
    for row in run.rows:
        for split, score in row.splits().items():
            place = head | {"step": row.step, "split": split}
            if by_mask:
                for mask, one in sorted((score.masks or {}).items(), reverse=True):
                    yield place | {"mask": mask, "r2": one.r2, "mse": one.mse, "episodes": one.episodes}
                continue
            probe = row.probe.split(split) if row.probe is not None and split in ("in_dist", "ood") else None
            novel = row.novel.ood.r2 if row.novel is not None and split == "ood" else None
            scores: Row = {"r2": score.r2, "mse": score.mse, "probe": probe[-1] if probe else None, "novel": novel}
            yield place | scores


def reference_rows(run: StoredRun) -> Iterator[Row]:
    """The references of a run's task, at its last step, with the name of the reference in place of the model."""
    for name, reference in (run.references or {}).items():
        for split in ("in_dist", "ood", "control", "control_modules"):
            if (score := reference.split(split)) is not None:
                head: Row = {"run": run.path.name, "model": name, "support": run.support, "seed": run.seed}
                novel = reference.novel.ood.r2 if reference.novel is not None and split == "ood" else None
                scores: Row = {"r2": score.r2, "mse": score.mse, "probe": None, "novel": novel}
                yield head | {"step": run.last.step if run.last else 0, "split": split} | scores


def final_rows(run: StoredRun) -> Iterator[Row]:
    """The rows of a run's last step, and those of its references."""
    yield from run_rows(replace(run, rows=run.rows[-1:]))
    yield from reference_rows(run)


def to_frame(rows: Iterator[Row] | Sequence[Row], library: Library | None = None) -> Any:
    """The rows as a table of pandas or polars: of the one that is named, or else of the first that is installed."""
    if library is not None:
        check_choice("library", library, *LIBRARIES)
    chosen = next((name for name in ((library,) if library else LIBRARIES) if find_spec(name) is not None), None)
    if chosen is None:
        wanted = library or "pandas, or polars"
        raise InputError("library", library or "pandas", f"is not installed: pip install {wanted}")
    return import_module(chosen).DataFrame(list(rows))


WIDTH = 100


def scores_text(scores: ScoreTable) -> str:
    """The table that the commands print."""
    from rich.console import Console

    from recombine.terminal.tables import print_scores

    text = StringIO()
    print_scores(scores, Console(file=text, width=WIDTH, highlight=False))
    return text.getvalue()


def scores_html(scores: ScoreTable) -> str:
    """A row for each model and reference, a column for each split and for the probe."""
    everyone = {**scores.models, **scores.references}
    columns = [split for split in EVAL_SPLITS if any(row.r2.get(split) is not None for row in everyone.values())]
    others = [name for name in ("novel", "probe") if any(getattr(row, name) is not None for row in everyone.values())]
    rows = []
    for name, row in everyone.items():
        values = [row.r2.get(split) for split in columns] + [getattr(row, other) for other in others]
        rows.append([name, *("–" if value is None else f"{value:.3f}" for value in values)])
    return html_table(scores.title, ["R²", *columns, *others], rows)
