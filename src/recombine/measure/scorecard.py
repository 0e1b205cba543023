"""The scorecard: the measures of a finished run that are not in its metrics.

A measure is a function `measure(evaluated) -> record`, in a file of its own. To add one, write the file, and add one
field to `Scorecard` and one line to `MEASURES`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from recombine.config.schema import Config
from recombine.measure.active_modules import measure_active_modules
from recombine.measure.context_probe import TokenProbes, measure_token_probes
from recombine.measure.evaluated import EvaluatedModel
from recombine.measure.latent.explicit_inference import ExplicitInference, measure_explicit_inference
from recombine.measure.latent.interventions import Interventions, measure_interventions
from recombine.measure.latent.module_recovery import Recovery, measure_modules
from recombine.measure.novel import measure_novel
from recombine.model.build import count_parameters
from recombine.model.interface import Model
from recombine.record.codec import Count, NumModules, Record
from recombine.record.novel import NovelScores
from recombine.record.score import SCORECARD_FORMAT, Score


class Scorecard(Record, frozen=True, kw_only=True):
    """The content of `scorecard.json`. A measure that does not apply to the model is None."""

    format: int = SCORECARD_FORMAT
    step: Count
    num_parameters: int
    active_modules: dict[NumModules, Score]
    novel: NovelScores | None = None
    probe_tokens: TokenProbes | None = None
    modules: Recovery | None = None
    interventions: Interventions | None = None
    explicit_inference: ExplicitInference | None = None


MEASURES: Mapping[str, Callable[[EvaluatedModel], Any]] = {
    "active_modules": measure_active_modules,
    "novel": measure_novel,
    "probe_tokens": measure_token_probes,
    "modules": measure_modules,
    "interventions": measure_interventions,
    "explicit_inference": measure_explicit_inference,
}


def make_scorecard(config: Config, model: Model, step: int) -> Scorecard:
    """Apply every measure to a model that was trained for `step` steps."""
    evaluated = EvaluatedModel(config, model)
    results = {name: measure(evaluated) for name, measure in MEASURES.items()}
    return Scorecard(step=step, num_parameters=count_parameters(model), **results)
