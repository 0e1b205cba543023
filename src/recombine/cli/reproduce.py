"""`recombine reproduce`: the main job."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recombine.cli.printing import note, print_json
from recombine.cli.train import carry_out
from recombine.config_file import config_as_dict, read_toml
from recombine.preset import Preset, reproduce_configs

if TYPE_CHECKING:
    from recombine.experiment.interrupt import StopRequest


@dataclass(frozen=True)
class Reproduce:
    """Train the paper's two models and score them in and out of distribution, beside the references."""

    preset: Preset = "quick"
    """paper: the paper's settings, hours. quick: smaller tasks and models, minutes. smoke: to see that it runs."""
    config: Path | None = None
    """A TOML file of changes to the preset."""
    seed: int | None = None
    """Draws the teacher, the initial parameters and the data; the configuration's (0) where it is not given."""
    out: Path | None = None
    """The directory of the runs; runs/reproduce-PRESET where it is not given. The same command again goes on."""
    threads: int | None = None
    """Threads; all cores where it is not given. Part of what the bits of a run depend on."""
    resume_anyway: bool = False
    """Go on although the settings, versions or threads are not those the runs were made with."""
    json: bool = False
    """Print JSON, with the configurations and every score."""

    def run(self) -> None:
        configs = reproduce_configs(self.preset, read_toml(self.config) if self.config else {}, self.seed)
        task = configs["transformer"].task
        if not task.support.held_out:
            note(f"support {task.support.name} holds nothing out: there will be no ood score")
        out = self.out or Path("runs") / f"reproduce-{self.preset}"
        from recombine.experiment.machine import prepare
        from recombine.experiment.rundir import check_run_path

        runs = {kind: out / f"{kind}-seed{config.seed}" for kind, config in configs.items()}
        for path in runs.values():
            check_run_path(path)
        prepare(self.threads)
        from recombine.experiment.evaluate import reference_scores
        from recombine.experiment.interrupt import run_interruptibly
        from recombine.experiment.run import RunOptions
        from recombine.report.tables import print_scores

        options = RunOptions(resume_anyway=self.resume_anyway)

        def train_both(request: "StopRequest") -> dict:
            scores = {}
            for kind, config in configs.items():
                scores[kind] = carry_out(config, runs[kind], options, request).scores
                if request.requested():
                    break
            return scores

        models = run_interruptibly(train_both, note)
        note("scoring the references")
        references = reference_scores(configs["transformer"])  # the tasks are the same for both models
        if self.json:
            print_json(
                {
                    "preset": self.preset,
                    "runs": {kind: str(path) for kind, path in runs.items()},
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
