"""R² on tasks of k active modules: trained on pairs, a model meets single modules and triples."""

from recombine.measure.evaluated import EvaluatedModel
from recombine.measure.r2 import score
from recombine.record.score import Score
from recombine.task.evaluation import active_modules_episodes


def measure_active_modules(evaluated: EvaluatedModel) -> dict[str, Score]:
    """The score for each k, which is the key as text: a key of JSON."""
    return {
        str(k): score(evaluated.forward(episodes).y, episodes)
        for k, episodes in active_modules_episodes(evaluated.config, evaluated.teacher)
    }
