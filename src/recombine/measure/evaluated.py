"""A trained model as measures see it: with its teacher, its episodes, its outputs on them."""

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
    """What a measure is given: `measure(evaluated) -> record`, or None where the model lacks what is measured.

    Episodes and outputs are computed when a measure first asks for them, and kept for the next measure.
    """

    def __init__(self, config: Config, model: Model):
        self.config, self.model = config, model
        self.teacher = config_teacher(config)

    def forward(self, episodes: Episode) -> BatchOutput:
        return forward_episodes(self.config, self.model, episodes)

    @cached_property
    def episodes(self) -> dict[Split, Episode]:
        """The evaluation episodes of the teacher's own splits, in distribution and held out."""
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
        """In-distribution episodes of their own, for whatever is fitted: probes, maps between latents."""
        return probe_episodes(self.config, self.teacher)

    @cached_property
    def fit_output(self) -> BatchOutput:
        return self.forward(self.fit_episodes)

    @cached_property
    def probe(self) -> Probe | None:
        """The linear probe of the latent; None where the model shows no residual stream."""
        return fit_probe(self.fit_output, self.fit_episodes.latent)

    @property
    def latent_model(self) -> LatentModel | None:
        """The model, if it infers a latent that it can execute."""
        infers = self.fit_output.latent is not None
        return self.model if infers and isinstance(self.model, LatentModel) else None
