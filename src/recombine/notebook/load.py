"""`rc.load`: a trained run, its model and its scores."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine.config.schema import Config
from recombine.errors import InputError
from recombine.notebook.configure import model_kind
from recombine.notebook.frame import Library, run_rows, scores_html, scores_text, to_frame
from recombine.record.score import MetricsRow
from recombine.run.machine import prepare
from recombine.storage.reader import StoredRun, read_run
from recombine.storage.source import open_run, require_runs
from recombine.study.summary import ScoreTable, references_of_run, row_scores

if TYPE_CHECKING:
    from recombine.model.interface import Model
    from recombine.run.load import TrainedModel

DEMO = "demo"


class Run:
    """A run: its configuration, its scores and, where they are stored, its trained parameters.

    Its scores are read at once; the model is loaded when it is first used.
    """

    def __init__(self, stored: StoredRun):
        self.stored = stored

    @property
    def path(self) -> Path:
        return self.stored.path

    @property
    def config(self) -> Config:
        return self.stored.config

    @property
    def label(self) -> str:
        """The model's name in tables and figures."""
        return self.stored.model

    @property
    def rows(self) -> tuple[MetricsRow, ...]:
        """The scores at every snapshot."""
        return self.stored.rows

    @cached_property
    def trained(self) -> "TrainedModel":
        """The model of the newest checkpoint, with its configuration and step."""
        from recombine.run.load import load_model

        return load_model(self.path)

    @property
    def model(self) -> "Model":
        """The trained model: `model(context_x, context_y, query_x)`, for one episode."""
        return self.trained.model

    @property
    def step(self) -> int:
        """The step of the last measurement."""
        return 0 if self.stored.last is None else self.stored.last.step

    def table(self) -> ScoreTable:
        """The final R² by split, and that of the references if they are stored."""
        models = {} if self.stored.last is None else {self.label: row_scores(self.stored.last)}
        return ScoreTable(
            f"{self.path}: {self.stored.summary}", models, references_of_run(self.stored.references or {})
        )

    def frame(self, by_mask: bool = False, library: Library | None = None) -> Any:
        """The scores as a tidy table: one row for each step and split (or mask)."""
        return to_frame(run_rows(self.stored, by_mask), library)

    def __repr__(self) -> str:
        return f"Run({self.path}: {self.stored.summary})"

    def __str__(self) -> str:
        return scores_text(self.table())

    def _repr_html_(self) -> str:
        return scores_html(self.table())


def load(path: str | Path, model: "str | type | None" = None) -> Run:
    """The run in a directory, or in an archive (`ARCHIVE.zip/NAME`), or one of the demo: `demo/paper/NAME`.

    A run of a model of your own needs its class: `model` is the class, or "package.module:Class".
    """
    prepare()
    where = demo_path(path)
    given = None if model is None else model_kind(model)
    try:
        source = open_run(where)
    except InputError:
        found = require_runs(where, "path")  # raises an error if there are none
        names = _first([run.name for run in found])
        raise InputError("path", str(path), f"holds {len(found)} runs: {names}; rc.runs(…) loads them all") from None
    run = read_run(source)
    if given is not None and given != run.config.model.kind:
        raise InputError("model", given, f"the run's model is {run.config.model.kind}")
    return Run(run)


def demo_path(path: str | Path) -> Path:
    """A path; one that begins with `demo/` is below the trained models that are shipped with Recombine."""
    if isinstance(path, Path) or Path(path).exists() or Path(path).parts[:1] != (DEMO,):
        return Path(path)
    from recombine.storage.demo import demo_archives

    archives = demo_archives()
    _, *rest = Path(path).parts
    if not rest:
        return next(iter(archives.values())).parents[1]
    if rest[0] not in archives:
        raise InputError("path", str(path), f"the demo has {', '.join(f'{DEMO}/{name}' for name in archives)}")
    archive = archives[rest[0]].joinpath(*rest[1:])
    if len(rest) > 1:
        names = [source.name for source in require_runs(archives[rest[0]])]
        if rest[1] not in names:
            raise InputError("path", str(path), f"one of {_first(names)}")
    return archive


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (" …" if len(names) > 6 else "")
