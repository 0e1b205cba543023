"""The examination of a run: scores, scorecard and references, measured where missing."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recombine.config.schema import Config
from recombine.errors import InputError
from recombine.files import where_allowed
from recombine.measure.predict import forward_episodes
from recombine.measure.r2 import score
from recombine.measure.scorecard import Scorecard, make_scorecard
from recombine.measure.snapshot import measure_snapshot
from recombine.record.codec import plain
from recombine.record.reference import References
from recombine.record.score import MetricsRow
from recombine.run.load import TrainedModel
from recombine.storage.measuring_code import SCORECARD, code_of
from recombine.storage.reader import StoredRun, read_scorecard
from recombine.storage.reference_files import references_of
from recombine.storage.shared_file import Writing, remove_leftovers
from recombine.storage.source import SCORECARD as SCORECARD_FILE
from recombine.storage.source import DirectorySource, RunSource, open_run
from recombine.storage.writer import write_scorecard
from recombine.task.evaluation import evaluation_episodes
from recombine.task.teacher import config_teacher

TOLERANCE = 1e-3  # of the error's share: between kinds of processors, R² differs by less than 1e-5


@dataclass(frozen=True)
class Examined:
    """Everything that is measured of a run's newest checkpoint."""

    run: StoredRun
    row: MetricsRow
    scorecard: Scorecard
    references: References

    def as_json(self) -> dict[str, Any]:
        """What `recombine eval --json` prints."""
        run = self.run
        head = {"model": run.model, "support": run.support, "seed": run.seed, "step": self.row.step}
        scores = {name: value for name, value in plain(self.row).items() if name not in ("step", "loss")}
        card = {name: value for name, value in plain(self.scorecard).items() if name not in ("format", "step")}
        made = {"num_steps": run.num_steps, "sources": (run.made and run.made.sources) or None, "notes": run.notes}
        return head | made | scores | card | {"references": plain(self.references)}


def examine(
    run: StoredRun, trained: TrainedModel | None, say: Callable[[str], None], writing: Writing = nullcontext
) -> Examined:
    """All scores of a run. A stored number is measured again if it is damaged, or if other code measured it.

    Without a model everything must be stored: such a run was exported without its parameters, after it was examined.
    """
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
            f"{run.path}: the stored R² in distribution, {row.in_dist.r2:.4f}, is not what the parameters have with "
            f"this code, {measured:.4f}: everything is measured again"
        )
        row = None
    elif row is None:  # the newest checkpoint lies between two measurements
        say(f"{run.path}: measuring at step {trained.step}")
    disagrees = row is None and measured is not None
    if row is None:
        row = measure_snapshot(trained.config, trained.model, config_teacher(trained.config), trained.step)
    say(f"{run.path}: examining")
    card = make_scorecard(*trained) if disagrees else scorecard_of(run.path, trained, say, writing)
    return Examined(run, row, card, references)


def in_dist_r2(trained: TrainedModel) -> float:
    """R² in distribution, measured now: it tells whether parameters and code are those that the scores are of."""
    config = trained.config
    _, episodes = evaluation_episodes(config, config_teacher(config), "in_dist")
    return score(forward_episodes(config, trained.model, episodes).y, episodes).r2


def agree(stored: float, measured: float) -> bool:
    """Whether two measurements of one model are the same, but for the rounding of another machine."""
    return abs(stored - measured) <= TOLERANCE * max(1.0, abs(1.0 - stored))


def scorecard_of(
    run: Path,
    trained: TrainedModel,
    say: Callable[[str], None] = lambda text: None,
    writing: Writing = nullcontext,
) -> Scorecard:
    """The scorecard of a run's newest checkpoint; measured, and stored where possible, if it is not there yet."""
    source, stored = open_run(run), None
    if isinstance(source, DirectorySource):
        remove_leftovers(run / SCORECARD_FILE)
    try:
        stored = read_scorecard(source)
    except InputError as damage:
        say(f"{damage}; measuring it again")
    sources = code_of(trained.config, SCORECARD)
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
    """Whether the scorecard of this step is there, whole, and measured by this code."""
    try:
        stored = read_scorecard(source)
    except InputError:  # damaged: measured again
        return False
    return stored is not None and stored.value.step == step and stored.measured_by(code_of(config, SCORECARD))
