"""The scores by which a sweep selects: those of finished runs on episodes that no reported score uses.

The paper selects by the R² on held-out masks. The winner's score on the episodes that selected it is biased upwards,
more so with more configurations. So the episodes for selection have their own random stream.
"""

from contextlib import nullcontext
from pathlib import Path

from recombine.config.schema import Config
from recombine.errors import InputError
from recombine.measure.predict import forward_episodes
from recombine.measure.r2 import score
from recombine.model.interface import Model
from recombine.record.score import Score, SplitScore
from recombine.record.sweep import Selection, SelectionScores
from recombine.run.load import TrainedModel
from recombine.storage.integrity import SELECTION_CODE, code_of
from recombine.storage.locking import Writing
from recombine.storage.reader import SELECTION_FORMAT, last_row, read_selection
from recombine.storage.source import RunSource, open_run
from recombine.storage.writer import write_selection
from recombine.support.split import TEACHER_SPLITS
from recombine.task.evaluation import evaluation_splits, selection_episodes
from recombine.task.teacher import config_teacher


def selection_scores(config: Config, model: Model) -> SelectionScores:
    """The scores for selection: in distribution, and out of distribution if masks are held out."""
    teacher, found = config_teacher(config), {}
    for split in TEACHER_SPLITS:
        if split in evaluation_splits(config):
            episodes = selection_episodes(config, teacher, split)
            found[split] = score(forward_episodes(config, model, episodes).y, episodes)
    return SelectionScores(**found)


def store_selection(run: Path, trained: TrainedModel, writing: Writing = nullcontext) -> None:
    """Measure and store the scores of the newest checkpoint, unless they are stored already."""
    source = open_run(run)
    if selection_is_stored(source, trained.config, trained.step):
        return
    row, report = last_row(source), SelectionScores()
    if row is not None and row.step == trained.step:  # the results of a sweep then need no other file
        report = SelectionScores(_without_masks(row.in_dist), _without_masks(row.ood))
    selected = selection_scores(trained.config, trained.model)
    selection = Selection(SELECTION_FORMAT, trained.step, selected, report)
    write_selection(run, selection, code_of(trained.config, SELECTION_CODE), writing)


def selection_is_stored(source: RunSource, config: Config, step: int) -> bool:
    """Whether intact scores of this step are stored that the current code measured."""
    try:
        stored = read_selection(source)
    except InputError:  # damaged: measured again
        return False
    return stored is not None and stored.value.step == step and stored.measured_by(code_of(config, SELECTION_CODE))


def _without_masks(score: SplitScore | None) -> Score | None:
    return None if score is None else Score(score.r2, score.nmse, score.r2_variance, score.mse)
