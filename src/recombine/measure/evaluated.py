"""The input of a measure: a trained model, its teacher, its evaluation episodes, and its outputs on them."""

from functools import cached_property

from recombine.config.schema import Config
from recombine.measure.predict import forward_episodes
from recombine.measure.probe import Probe, fit_probe
from recombine.model.interface import BatchOutput, LatentModel, Model
from recombine.support.split import TEACHER_SPLITS, Split
from recombine.task.episode import Episode
from recombine.task.evaluation import evaluation_episodes, evaluation_splits, probe_episodes
from recombine.task.teacher import config_teacher


class EvaluatedModel:
    """The argument of every measure: `measure(evaluated) -> record`, or None if the model cannot be measured that way.

    Episodes and outputs are computed when a measure first needs them, and cached for the next measure.
    """

    def __init__(self, config: Config, model: Model):
        self.config, self.model = config, model
        self.teacher = config_teacher(config)

    def forward(self, episodes: Episode) -> BatchOutput:
        return forward_episodes(self.config, self.model, episodes)

    @cached_property
    def episodes(self) -> dict[Split, Episode]:
        """The evaluation episodes of the splits `in_dist` and, if masks are held out, `ood`."""
        found: dict[Split, Episode] = {}
        for split in evaluation_splits(self.config):
            if split in TEACHER_SPLITS:
                found[split] = evaluation_episodes(self.config, self.teacher, split)[1]
        return found

    @cached_property
    def outputs(self) -> dict[Split, BatchOutput]:
        return {split: self.forward(episodes) for split, episodes in self.episodes.items()}

    @cached_property
    def fit_episodes(self) -> Episode:
        """Separate in-distribution episodes, for fitting probes and maps between latents."""
        return probe_episodes(self.config, self.teacher)

    @cached_property
    def fit_output(self) -> BatchOutput:
        return self.forward(self.fit_episodes)

    @cached_property
    def probe(self) -> Probe | None:
        """The linear probe of the latent. None if the model returns neither residual stream nor latent."""
        return fit_probe(self.fit_output, self.fit_episodes.latent)

    @property
    def latent_model(self) -> LatentModel | None:
        """The model, if it infers a latent and can execute one; otherwise None."""
        infers = self.fit_output.latent is not None
        return self.model if infers and isinstance(self.model, LatentModel) else None
