"""Shows the progress of a run in training."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from recombine.config.schema import Config
from recombine.run.signals import StopSignal
from recombine.run.training import Progress, RunOptions, execute_run
from recombine.storage.reader import read_rows
from recombine.storage.source import open_run
from recombine.support.split import TEACHER_SPLITS
from recombine.terminal.output import note
from recombine.terminal.progress import ProgressDisplay
from recombine.terminal.track import Tracker, TrackerName


def show_progress(
    config: Config, out: Path, options: RunOptions, stop: StopSignal, track: TrackerName | None = None
) -> Progress:
    """Execute the run, and show its progress on stderr. Returns the last report.

    A tracker gets the rows of metrics: those that are stored already first, then each new one.
    """
    tracker = None if track is None else Tracker(track, out, config, note)
    try:
        return _show(config, out, options, stop, tracker)
    finally:
        if tracker is not None:
            tracker.close()


def _show(config: Config, out: Path, options: RunOptions, stop: StopSignal, tracker: Tracker | None) -> Progress:
    with closing(execute_run(config, out, options, stop, note)) as found:
        reports = found if tracker is None else _tracked(found, out, tracker)
        last = next(reports)  # raises an error if the run cannot resume
        if last.step >= config.optimizer.num_steps or last.step >= (options.stop_at or last.step + 1):
            note(f"{out} is already at step {last.step}")
            return list(reports)[-1]  # only measuring may be left to do
        with ProgressDisplay(config.model.label, config.optimizer.num_steps, first=last.step) as display:
            for last in reports:
                display.update(last.step, _detail(last))
    return last


def _tracked(reports: Iterator[Progress], out: Path, tracker: Tracker) -> Iterator[Progress]:
    for number, report in enumerate(reports):
        for row in read_rows(open_run(out)) if number == 0 else ():
            tracker.send(row)
        tracker.send(report.row)
        yield report


def _detail(progress: Progress) -> str:
    parts = [] if progress.loss is None else [f"loss {progress.loss:.4f}"]
    scores = {} if progress.row is None else progress.row.splits()
    parts += [f"R² {split} {scores[split].r2:.3f}" for split in TEACHER_SPLITS if split in scores]
    return " · ".join(parts)
