"""R² by the number k of active modules: a model trained on pairs is tested on single modules, triples and so on."""

from recombine.measure.evaluated import EvaluatedModel
from recombine.measure.r2 import score
from recombine.record.score import Score
from recombine.task.evaluation import active_modules_episodes


def measure_active_modules(evaluated: EvaluatedModel) -> dict[str, Score]:
    """The score for each k. The keys are text, because JSON has no other."""
    return {
        str(k): score(evaluated.forward(episodes).y, episodes)
        for k, episodes in active_modules_episodes(evaluated.config, evaluated.teacher)
    }
