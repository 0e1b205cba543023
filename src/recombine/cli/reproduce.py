"""`recombine reproduce`: the main job."""

from dataclasses import dataclass
from pathlib import Path

from recombine.cli.printing import note, print_json
from recombine.config_file import config_as_dict, read_toml
from recombine.preset import Preset, reproduce_configs


@dataclass(frozen=True)
class Reproduce:
    """Train the paper's two models and score them in and out of distribution, beside the references."""

    preset: Preset = "quick"
    """paper: the paper's settings, hours. quick: smaller tasks and models, minutes. smoke: to see that it runs."""
    config: Path | None = None
    """A TOML file of changes to the preset."""
    seed: int | None = None
    """Draws the teacher, the initial parameters and the data; the configuration's (0) where it is not given."""
    json: bool = False
    """Print JSON, with the configurations and every score."""

    def run(self) -> None:
        configs = reproduce_configs(self.preset, read_toml(self.config) if self.config else {}, self.seed)
        task = configs["transformer"].task
        if not task.support.held_out:
            note(f"support {task.support.name} holds nothing out: there will be no ood score")
        from recombine.experiment.run import reference_scores, run
        from recombine.report.progress import ProgressDisplay
        from recombine.report.tables import print_scores

        models = {}
        for kind, config in configs.items():
            with ProgressDisplay(kind, config.optimizer.num_steps) as display:
                for progress in run(config):
                    display.update(progress.step, f"loss {progress.loss:.4f}")
                    if progress.scores:
                        models[kind] = progress.scores
        note("scoring the references")
        references = reference_scores(configs["transformer"])  # the tasks are the same for both models
        if self.json:
            print_json(
                {
                    "preset": self.preset,
                    "configs": {kind: config_as_dict(config) for kind, config in configs.items()},
                    "models": {name: {split: s._asdict() for split, s in row.items()} for name, row in models.items()},
                    "references": {
                        name: {split: s._asdict() for split, s in row.items()} for name, row in references.items()
                    },
                }
            )
            return
        steps = " and ".join(sorted({f"{config.optimizer.num_steps:,}" for config in configs.values()}))
        title = (
            f"Trained on {task.support.name} for {steps} steps (N = {task.episode_length}, d = {task.input_dim}, "
            f"h = {task.hidden_dim}, seed {configs['transformer'].seed})"
        )
        print_scores(title, models, references)
