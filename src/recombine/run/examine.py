"""Examines a run: collects its scores, scorecard and references, and measures those that are missing."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from recombine.config.schema import Config
from recombine.errors import InputError
from recombine.files import where_allowed
from recombine.measure.evaluated import EvaluatedModel
from recombine.measure.latent.explicit_inference import ExplicitInference, measure_explicit_inference
from recombine.measure.predict import forward_episodes
from recombine.measure.r2 import score
from recombine.measure.scorecard import Scorecard, make_scorecard
from recombine.measure.snapshot import measure_snapshot
from recombine.record.codec import plain
from recombine.record.reference import References
from recombine.record.score import MetricsRow
from recombine.run.load import TrainedModel
from recombine.storage.integrity import SCORECARD_CODE, code_of
from recombine.storage.locking import Writing, remove_leftovers
from recombine.storage.reader import StoredRun, read_scorecard
from recombine.storage.reference_files import references_of
from recombine.storage.source import SCORECARD as SCORECARD_FILE
from recombine.storage.source import DirectorySource, RunSource, open_run
from recombine.storage.writer import write_scorecard
from recombine.task.evaluation import evaluation_episodes
from recombine.task.teacher import config_teacher

TOLERANCE = 1e-3  # of R², or relative to 1 − R² if that exceeds 1; processors differ by less than 1e-5


@dataclass(frozen=True)
class Examined:
    """Every measurement of a run's newest checkpoint."""

    run: StoredRun
    row: MetricsRow
    scorecard: Scorecard
    references: References

    def as_json(self) -> dict[str, Any]:
        """The output of `recombine eval --json`."""
        run = self.run
        head = {"model": run.model, "support": run.support, "seed": run.seed, "step": self.row.step}
        scores = {name: value for name, value in plain(self.row).items() if name not in ("step", "loss")}
        card = {name: value for name, value in plain(self.scorecard).items() if name not in ("format", "step")}
        made = {"num_steps": run.num_steps, "sources": (run.made and run.made.sources) or None, "notes": run.notes}
        return head | made | scores | card | {"references": plain(self.references)}


def examine(
    run: StoredRun,
    trained: TrainedModel | None,
    say: Callable[[str], None],
    writing: Writing = nullcontext,
    inference_steps: int | None = None,
) -> Examined:
    """All scores of a run. A stored result is measured again if it is damaged, or if other code measured it.

    Without a model (`trained` is None: the run was exported without its parameters), everything must be stored.
    With `inference_steps`, explicit inference is measured with that many steps. The result is shown, not stored.
    """
    explicit = None
    if inference_steps is not None:
        explicit = _explicit_inference(run, trained, inference_steps, say)
    source = open_run(run.path)
    for text in run.notes:
        say(f"{run.path}: {text}")
    references = references_of(source, run.config, say, writing)
    if trained is None:
        assert run.last is not None
        assert run.scorecard is not None
        return Examined(run, run.last, run.scorecard, references)
    row = next((row for row in reversed(run.rows) if row.step == trained.step), None)
    measured = None if row is None else in_dist_r2(trained)
    if row is not None and measured is not None and not agree(row.in_dist.r2, measured):
        say(
            f"{run.path}: the stored R² in distribution is {row.in_dist.r2:.4f}, but the stored parameters have "
            f"{measured:.4f} with this code; measuring everything again"
        )
        row = None
    elif row is None:  # the newest checkpoint was saved between two measurements
        say(f"{run.path}: measuring at step {trained.step}")
    disagrees = row is None and measured is not None
    if row is None:
        row = measure_snapshot(trained.config, trained.model, config_teacher(trained.config), trained.step)
    say(f"{run.path}: examining")
    card = make_scorecard(*trained) if disagrees else scorecard_of(run.path, trained, say, writing)
    return Examined(run, row, structs.replace(card, explicit_inference=explicit) if explicit else card, references)


def _explicit_inference(
    run: StoredRun, trained: TrainedModel | None, steps: int, say: Callable[[str], None]
) -> ExplicitInference:
    if trained is None:
        raise InputError("inference_steps", steps, f"{run.path} has no parameters to infer with")
    evaluated = EvaluatedModel(trained.config, trained.model)
    if evaluated.latent_model is None:
        raise InputError("inference_steps", steps, f"{run.path} is a run of {run.model}, which executes no latent")
    say(f"{run.path}: explicit inference with {steps} steps")
    found = measure_explicit_inference(evaluated, steps)
    assert found is not None
    return found


def in_dist_r2(trained: TrainedModel) -> float:
    """R² in distribution, measured now. It shows whether the stored scores belong to these parameters and this code."""
    config = trained.config
    _, episodes = evaluation_episodes(config, config_teacher(config), "in_dist")
    return score(forward_episodes(config, trained.model, episodes).y, episodes).r2


def agree(stored: float, measured: float) -> bool:
    """Whether two measurements of a model agree, up to the rounding differences between machines."""
    return abs(stored - measured) <= TOLERANCE * max(1.0, abs(1.0 - stored))


def scorecard_of(
    run: Path,
    trained: TrainedModel,
    say: Callable[[str], None] = lambda text: None,
    writing: Writing = nullcontext,
) -> Scorecard:
    """The scorecard of a run's newest checkpoint. If it is missing, it is measured, and stored if possible."""
    source, stored = open_run(run), None
    if isinstance(source, DirectorySource):
        remove_leftovers(run / SCORECARD_FILE)
    try:
        stored = read_scorecard(source)
    except InputError as damage:
        say(f"{damage}; measuring it again")
    sources = code_of(trained.config, SCORECARD_CODE)
    if stored is not None and stored.value.step == trained.step:
        if stored.measured_by(sources):
            return stored.value
        say(f"{run}: the stored scorecard was measured by other code; measuring it again")
    card = make_scorecard(*trained)
    if isinstance(source, DirectorySource):
        with where_allowed():
            write_scorecard(run, card, sources, writing)
    return card


def scorecard_is_stored(source: RunSource, config: Config, step: int) -> bool:
    """Whether an intact scorecard of this step is stored that the current code measured."""
    try:
        stored = read_scorecard(source)
    except InputError:  # damaged: measured again
        return False
    return stored is not None and stored.value.step == step and stored.measured_by(code_of(config, SCORECARD_CODE))
