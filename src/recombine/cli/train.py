"""`recombine train`: trains one run."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from recombine.cli.arguments import OptionalClass, OptionalInt, OptionalPath, name_task, plain_help
from recombine.config.model import SHIPPED, CustomModelConfig
from recombine.config.preset import Preset, preset_config
from recombine.config.schema import Config, field_names
from recombine.config.toml import Tables, config_tables, override, parse_changes, write_toml
from recombine.errors import InputError
from recombine.jobs.paper_runs import safe_name
from recombine.terminal.output import note, print_json, print_line

DEFAULT: Preset = "quick"

if TYPE_CHECKING:
    from recombine.run.training import Progress


FIELDS = "; ".join(f"{group}.{{{', '.join(names)}}}" for group, names in field_names().items())
SET_HELP = f"Single changes, such as model.num_layers=3 task.support=connected. The fields: {FIELDS}."


@dataclass(frozen=True)
@plain_help
class Train:
    """Train one model, measure it during training, and store it in a run directory. The same command resumes."""

    model: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    """transformer, hypertransformer, hypernetwork, bottleneck, linear-attention, deep-set, recurrent, gated-attention,
    perceiver, or package.module:Class. Default: the configuration's model, or transformer."""
    task: OptionalClass = None
    """package.module:Class, your own task. Default: the paper's task."""
    preset: Annotated[Preset | None, tyro.conf.arg(metavar="{smoke,quick,paper}")] = None
    """paper: the paper's settings (hours). quick: smaller tasks and models (minutes). smoke: a check that it runs.
    Default: quick, or the configuration of the run in --out."""
    config: OptionalPath = None
    """A TOML file with changes to the preset."""
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FIELD=VALUE ...", help=SET_HELP)] = ()
    seed: OptionalInt = None
    """The seed of the teacher, the initial parameters and the data. Default: the configuration's seed, or 0."""
    out: OptionalPath = None
    """The run directory. Default: runs/PRESET-MODEL-seedSEED. A run already there resumes with its configuration."""
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
    track: Annotated[Literal["tensorboard", "wandb", "trackio"] | None, tyro.conf.arg(metavar="TRACKER")] = None
    """Send the metrics to tensorboard (files in the run directory), wandb or trackio. Also for finished runs."""
    print_config: bool = False
    """Print the complete configuration as TOML, which --config reads back, and do nothing else."""
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        config = self._config()
        if self.print_config:
            print_line(write_toml(config).rstrip())
            return
        out = self.out or Path("runs") / f"{self.preset or DEFAULT}-{safe_name(config.model.label)}-seed{config.seed}"
        from recombine.run.machine import prepare
        from recombine.storage.writer import check_run_path

        check_run_path(out)
        prepare(self.threads, self.devices)
        from recombine.run.signals import run_interruptibly
        from recombine.run.training import RunOptions
        from recombine.terminal.training import show_progress

        if isinstance(config.model, CustomModelConfig):
            from recombine.model.custom import check_custom, import_model

            import_model(config.model.kind)
            check_custom(config)
        if self.task is not None:
            from recombine.task.custom_task import check_custom_task, import_task

            import_task(self.task)
            check_custom_task(config.task)
        options = RunOptions(self.devices, self.save_every, self.stop_at, self.resume_anyway)
        last = run_interruptibly(lambda stop: show_progress(config, out, options, stop, self.track), note)
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
        own = self._own_config(kinds)
        config = preset_config(self.preset or DEFAULT, kind) if own is None else own
        if self.task is not None:  # before the tables: they may set its options
            config = name_task(config, self.task)
        for table in tables:
            config = override(config, table)
        if self.task not in (None, config.task.kind):
            raise InputError("task", self.task, f"the configuration names {config.task.kind}; leave one of them out")
        if self.seed is not None and "seed" in tables[1]:
            raise InputError("seed", self.seed, f"--set says {tables[1]['seed']}; leave one of them out")
        config = name_task(config, self.task)  # refuses a class that only a file names
        return config if self.seed is None else replace(config, seed=self.seed)

    def _own_config(self, kinds: list[str]) -> Config | None:
        """The configuration of the run in --out, if there is one and the command does not name another."""
        from recombine.storage.reader import run_config
        from recombine.storage.source import CONFIG

        if self.out is None or not (self.out / CONFIG).is_file() or self.preset or self.config or kinds:
            return None
        own = run_config(self.out)
        if self.model is None and isinstance(own.model, CustomModelConfig) and own.model.kind not in SHIPPED:
            what = f"a class is imported only where the command names it: --model {own.model.kind}"
            raise InputError("model.kind", own.model.kind, what)
        return own if self.model in (None, own.model.kind) else None

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


def _model_table(changes: Tables) -> Tables:
    model = changes.get("model")
    return model if isinstance(model, dict) else {}
