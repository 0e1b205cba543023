"""The examination of a run: scores, scorecard and references, measured where missing."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recombine.files import where_allowed
from recombine.measure.scorecard import Scorecard, make_scorecard
from recombine.measure.snapshot import measure_snapshot
from recombine.record.codec import plain
from recombine.record.reference import References
from recombine.record.score import MetricsRow
from recombine.run.load import TrainedModel
from recombine.storage.directory import write_scorecard
from recombine.storage.reader import StoredRun, read_scorecard
from recombine.storage.reference_files import references_of
from recombine.storage.source import DirectorySource, open_run
from recombine.task.teacher import config_teacher


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
        return head | {"num_steps": run.num_steps} | scores | card | {"references": plain(self.references)}


def examine(run: StoredRun, trained: TrainedModel | None, say: Callable[[str], None]) -> Examined:
    """What is stored already is not measured again.

    Without a model everything must be stored: such a run was exported without its parameters, after it was examined.
    """
    source = open_run(run.path)
    references = references_of(source, run.config)
    if trained is None:
        assert run.last is not None
        assert run.scorecard is not None
        return Examined(run, run.last, run.scorecard, references)
    row = next((row for row in reversed(run.rows) if row.step == trained.step), None)
    if row is None:  # the newest checkpoint lies between two measurements
        say(f"{run.path}: measuring at step {trained.step}")
        row = measure_snapshot(trained.config, trained.model, config_teacher(trained.config), trained.step)
    say(f"{run.path}: examining")
    return Examined(run, row, scorecard_of(run.path, trained), references)


def scorecard_of(run: Path, trained: TrainedModel) -> Scorecard:
    """The scorecard of a run's newest checkpoint; measured, and stored where possible, if it is not there yet."""
    source = open_run(run)
    card = read_scorecard(source)
    if card is None or card.step != trained.step:
        card = make_scorecard(*trained)
        if isinstance(source, DirectorySource):
            with where_allowed():
                write_scorecard(run, card)
    return card
