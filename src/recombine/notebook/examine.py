"""`rc.examine`: every measure of a run, or of a model that was built or trained elsewhere."""

from dataclasses import dataclass
from typing import Any

from recombine.config.schema import Config
from recombine.errors import InputError
from recombine.measure.scorecard import Scorecard, make_scorecard
from recombine.measure.snapshot import measure_snapshot
from recombine.model.custom import adapted
from recombine.model.interface import Model
from recombine.notebook.frame import scores_html, scores_text
from recombine.notebook.load import Run
from recombine.record.codec import plain
from recombine.record.reference import References
from recombine.record.score import MetricsRow
from recombine.run.examine import examine as examine_run
from recombine.run.machine import prepare
from recombine.study.summary import ScoreTable, references_of_run, row_scores
from recombine.task.teacher import config_teacher
from recombine.terminal.output import note


@dataclass(frozen=True)
class Examination:
    """The measurements of one model, and the references on the same episodes."""

    label: str
    config: Config
    scores: MetricsRow
    """R² by split and mask, the probe, the novel part."""
    scorecard: Scorecard | None = None
    """R² by the number of active modules, probes of single tokens, recovered modules, interventions."""
    references: References | None = None

    def table(self) -> ScoreTable:
        title = f"{self.label} on {self.config.task.support.name}, step {self.scores.step:,}"
        return ScoreTable(title, {self.label: row_scores(self.scores)}, references_of_run(self.references or {}))

    def as_dict(self) -> Any:
        """Everything as plain data, as `recombine eval --json` prints it."""
        scores = {name: value for name, value in plain(self.scores).items() if name not in ("step", "loss")}
        card = {} if self.scorecard is None else plain(self.scorecard)
        references = None if self.references is None else plain(self.references)
        return {"model": self.label, "step": self.scores.step} | scores | card | {"references": references}

    def __repr__(self) -> str:
        shown = ", ".join(f"{split} {score.r2:.3f}" for split, score in self.scores.splits().items())
        return f"Examination({self.label}: R² {shown})"

    def __str__(self) -> str:
        return scores_text(self.table())

    def _repr_html_(self) -> str:
        return scores_html(self.table())


def examine(model: "Run | Model", config: Config | None = None, *, full: bool = True) -> Examination:
    """Put a model through the examination of the paper's models.

    A run is examined as by `recombine eval`: results that are stored are used. Any other model,
    `model(context_x, context_y, query_x) -> rc.Output(y, rc.Trace())`, needs the configuration of its tasks
    (`rc.configure`). With `full=False`, only the scores and the probe are measured, without scorecard and references.
    """
    prepare()
    if isinstance(model, Run):
        if config is not None:
            raise InputError("config", config, "a run has its own; leave it out")
        if not full and model.stored.last is not None:
            return Examination(model.label, model.config, model.stored.last)
        done = examine_run(model.stored, model.trained, note)
        return Examination(model.label, model.config, done.row, done.scorecard, done.references)
    if config is None:
        raise InputError("config", None, "the configuration of the tasks to examine the model on: rc.configure(…)")
    return _examine_model(model, config, full)


def _examine_model(model: Model, config: Config, full: bool) -> Examination:
    label = type(model).__name__
    if not callable(model):
        raise InputError("model", label, "cannot be called; it must be called as model(context_x, context_y, query_x)")
    model = adapted(model)
    row = measure_snapshot(config, model, config_teacher(config), 0)
    if not full:
        return Examination(label, config, row)
    from recombine.measure.reference.score import reference_scores

    return Examination(label, config, row, make_scorecard(config, model, 0), reference_scores(config))
