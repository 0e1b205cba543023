"""Shows the progress of a run in training."""

from contextlib import closing
from pathlib import Path

from recombine.config.schema import Config
from recombine.run.signals import StopSignal
from recombine.run.training import Progress, RunOptions, execute_run
from recombine.support.split import TEACHER_SPLITS
from recombine.terminal.output import note
from recombine.terminal.progress import ProgressDisplay


def show_progress(config: Config, out: Path, options: RunOptions, stop: StopSignal) -> Progress:
    """Execute the run, and show its progress on stderr. Returns the last report."""
    with closing(execute_run(config, out, options, stop, note)) as reports:
        last = next(reports)  # raises an error if the run cannot resume
        if last.step >= config.optimizer.num_steps or last.step >= (options.stop_at or last.step + 1):
            note(f"{out} is already at step {last.step}")
            return list(reports)[-1]  # only measuring may be left to do
        with ProgressDisplay(config.model.label, config.optimizer.num_steps, first=last.step) as display:
            for last in reports:
                display.update(last.step, _detail(last))
    return last


def _detail(progress: Progress) -> str:
    parts = [] if progress.loss is None else [f"loss {progress.loss:.4f}"]
    scores = {} if progress.row is None else progress.row.splits()
    parts += [f"R² {split} {scores[split].r2:.3f}" for split in TEACHER_SPLITS if split in scores]
    return " · ".join(parts)
