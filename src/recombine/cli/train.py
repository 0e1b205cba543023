"""`recombine train`: trains one run."""

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from recombine.cli.arguments import OptionalInt, OptionalPath
from recombine.config.preset import Preset, preset_config
from recombine.config.schema import Config, CustomModelConfig
from recombine.config.toml import Tables, config_tables, override, parse_changes
from recombine.errors import InputError
from recombine.jobs.paper_runs import safe_name
from recombine.support.split import TEACHER_SPLITS
from recombine.terminal.output import note, print_json, print_line

if TYPE_CHECKING:
    from recombine.run.signals import StopSignal
    from recombine.run.training import Progress, RunOptions


@dataclass(frozen=True)
class Train:
    """Train one model, measure it during training, and store it in a run directory. The same command resumes."""

    model: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    """transformer, hypertransformer, or package.module:Class. Default: that of the configuration, or transformer."""
    preset: Preset = "quick"
    """paper: the paper's settings, hours. quick: smaller tasks and models, minutes. smoke: a test that it runs."""
    config: OptionalPath = None
    """A TOML file with changes to the preset."""
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FIELD=VALUE ...")] = ()
    """Single changes, such as model.num_layers=3 task.support=connected."""
    seed: OptionalInt = None
    """Determines the teacher, the initial parameters and the data. Default: that of the configuration, or 0."""
    out: OptionalPath = None
    """The run directory. Default: runs/PRESET-MODEL-seedSEED."""
    stop_at: OptionalInt = None
    """Stop after this step, to resume later."""
    save_every: float = 60.0
    """Seconds between checkpoints."""
    threads: OptionalInt = None
    """Number of threads. Default: all cores. The number affects the last bits of a run."""
    devices: int = 1
    """Share each batch among this many JAX devices. Without an accelerator, CPU cores serve as devices."""
    resume_anyway: bool = False
    """Resume even if the run was made with other settings, versions, threads or devices."""
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        config = self._config()
        out = self.out or Path("runs") / f"{self.preset}-{safe_name(config.model.label)}-seed{config.seed}"
        from recombine.run.machine import prepare
        from recombine.storage.writer import check_run_path

        check_run_path(out)
        prepare(self.threads, self.devices)
        from recombine.run.signals import run_interruptibly
        from recombine.run.training import RunOptions

        if isinstance(config.model, CustomModelConfig):
            from recombine.model.custom import check_custom, import_model

            import_model(config.model.kind)
            check_custom(config)
        options = RunOptions(self.devices, self.save_every, self.stop_at, self.resume_anyway)
        last = run_interruptibly(lambda stop: train_with_progress(config, out, options, stop), note)
        self._print(config, out, last)

    def _config(self) -> Config:
        from recombine.storage.reader import read_tables

        tables = [read_tables(self.config) if self.config else {}, parse_changes(self.set)]
        kinds = [table["model"].pop("kind") for table in tables if "kind" in _model_table(table)]
        kind = kinds[-1] if kinds else self.model or "transformer"
        if self.model not in (None, kind):
            raise InputError("model", self.model, f"the configuration names {kind}; leave one of them out")
        if isinstance(kind, str) and ":" in kind and self.model is None:
            raise InputError("model.kind", kind, f"a class is imported only where the command names it: --model {kind}")
        config = preset_config(self.preset, kind)
        for table in tables:
            config = override(config, table)
        if self.seed is not None and "seed" in tables[1]:
            raise InputError("seed", self.seed, f"--set says {tables[1]['seed']}; leave one of them out")
        return config if self.seed is None else replace(config, seed=self.seed)

    def _print(self, config: Config, out: Path, last: "Progress") -> None:
        if self.json:
            from recombine.record.codec import plain

            scores = {name: value for name, value in plain(last.row).items() if name not in ("step", "loss")}
            result = {"run": str(out), "step": last.step, "config": config_tables(config), "scores": scores}
            print_json(result)
            return
        from recombine.study.summary import ScoreTable, row_scores
        from recombine.terminal.tables import print_scores

        num_steps = config.optimizer.num_steps
        assert last.row is not None
        when = "" if last.row.step == last.step else f" (measured at step {last.row.step})"
        title = f"{out}: step {last.step} of {num_steps}{when}"
        print_scores(ScoreTable(title, {config.model.label: row_scores(last.row)}))
        if last.step < num_steps:
            print_line("stopped; the same command without --stop-at resumes")


def train_with_progress(config: Config, out: Path, options: "RunOptions", stop: "StopSignal") -> "Progress":
    """Execute the run, and show its progress on stderr. Returns the last report."""
    from recombine.run.training import execute_run
    from recombine.terminal.progress import ProgressDisplay

    with closing(execute_run(config, out, options, stop, note)) as reports:
        last = next(reports)  # raises an error if the run cannot resume
        if last.step >= config.optimizer.num_steps or last.step >= (options.stop_at or last.step + 1):
            note(f"{out} is already at step {last.step}")
            return list(reports)[-1]  # only measuring may be left to do
        with ProgressDisplay(config.model.label, config.optimizer.num_steps, first=last.step) as display:
            for last in reports:
                display.update(last.step, _detail(last))
    return last


def _detail(progress: "Progress") -> str:
    parts = [] if progress.loss is None else [f"loss {progress.loss:.4f}"]
    scores = {} if progress.row is None else progress.row.splits()
    parts += [f"R² {split} {scores[split].r2:.3f}" for split in TEACHER_SPLITS if split in scores]
    return " · ".join(parts)


def _model_table(changes: Tables) -> Tables:
    model = changes.get("model")
    return model if isinstance(model, dict) else {}
