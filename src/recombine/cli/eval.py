"""`recombine eval` examines runs, `score` predictions that any program made, `benchmark` a model on every task."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from recombine.checks import check_size
from recombine.cli.arguments import Executor, OptionalClass, OptionalInt, OptionalPath, plain_help
from recombine.cli.jobs import estimate_jobs, execute_jobs, headline, print_estimate
from recombine.config.model import MOST_INFERENCE_STEPS, CustomModelConfig
from recombine.errors import Failed, InputError
from recombine.files import check_path
from recombine.terminal.output import note, print_csv, print_json, print_line

if TYPE_CHECKING:
    from recombine.config.schema import Config
    from recombine.exam.result import Result
    from recombine.run.examine import Examined
    from recombine.run.signals import StopSignal
    from recombine.storage.source import RunSource


@dataclass(frozen=True)
@plain_help
class Eval:
    """Examine runs: R² by split, mask and number of active modules, probes, recovered modules, interventions."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run directories, or ARCHIVE.zip/NAME for a run in an archive."""
    model: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    """package.module:Class, for runs of a custom model."""
    task: OptionalClass = None
    """package.module:Class, for runs of a custom task."""
    threads: OptionalInt = None
    """Number of threads. Default: all cores."""
    inference_steps: OptionalInt = None
    """Steps of explicit inference, for models that execute a latent. Default: 3, as in the scorecard."""
    json: bool = False
    """Print JSON."""
    csv: bool = False
    """Print the scores of models and references as CSV, with a row for each split."""

    def run(self) -> None:
        if not self.runs:
            raise InputError("runs", "", "name at least one run directory")
        if self.inference_steps is not None:
            check_size("inference_steps", self.inference_steps, most=MOST_INFERENCE_STEPS)
        if self.json and self.csv:
            raise InputError("csv", True, "cannot be combined with --json; leave one of them out")
        sources = [_one_run(path) for path in self.runs]
        from recombine.run.machine import prepare

        prepare(self.threads)
        from recombine.model.custom import import_model
        from recombine.run.examine import examine
        from recombine.run.load import load_model
        from recombine.run.signals import run_interruptibly
        from recombine.storage.reader import read_run
        from recombine.task.custom_task import import_task
        from recombine.terminal.scorecard import print_examined

        if self.model:
            import_model(self.model)
        if self.task:
            import_task(self.task)
        # Read all runs before the first is measured, so that errors come early.
        runs = [read_run(source, scorecard=not source.has_parameters()) for source in sources]
        trained = []
        for run, source in zip(runs, sources, strict=True):
            stored_only = run.scorecard is not None and not source.has_parameters()
            if stored_only:
                note(f"{run.path}: has no parameters; showing the stored measurements")
            trained.append(None if stored_only else load_model(run.path, say=note))

        def work(stop: "StopSignal") -> "list[Examined]":
            with stop.exit_allowed(lambda: None):
                return [
                    examine(run, model, note, stop.writing, self.inference_steps)
                    for run, model in zip(runs, trained, strict=True)
                ]

        examined = run_interruptibly(work, note)
        if self.json:
            cards = {str(path): one.as_json() for path, one in zip(self.runs, examined, strict=True)}
            print_json(cards if len(cards) > 1 else next(iter(cards.values())))
            return
        if self.csv:
            from recombine.notebook.frame import final_rows

            measured = [replace(one.run, rows=(one.row,), references=one.references) for one in examined]
            print_csv(row for run in measured for row in final_rows(run))
            return
        for path, one in zip(self.runs, examined, strict=True):
            print_examined(str(path), one)


@dataclass(frozen=True)
@plain_help
class Score:
    """Score predictions that any program made for a file of episodes, beside the references on the same episodes."""

    predictions: tyro.conf.Positional[Path]
    """An .npz file with `prediction` (one number per episode) and `digest` (that of the file of episodes)."""
    episodes: Path
    """The .npz file of episodes, from `recombine task sample`."""
    task: OptionalClass = None
    """package.module:Class, for episodes of a custom task."""
    no_references: bool = False
    """Leave out the references, which take longer than the scores."""
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        check_path("predictions", self.predictions)
        check_path("episodes", self.episodes)
        from recombine.run.machine import prepare

        prepare()
        from recombine.exam.episode_file import read_episode_file
        from recombine.exam.score import read_predictions, score_file
        from recombine.task.custom_task import import_task

        if self.task:
            import_task(self.task)
        file = read_episode_file(self.episodes)
        found = score_file(read_predictions(self.predictions, file), file, not self.no_references)
        if self.json:
            from recombine.record.codec import plain

            print_json(plain(found))
            return
        from recombine.terminal.exam import print_exam

        print_exam(str(self.predictions), found)


@dataclass(frozen=True)
@plain_help
class Benchmark:
    """Train a model on the benchmark recombine-v1, and write one result file. The same command resumes."""

    model: Annotated[str, tyro.conf.arg(metavar="MODEL")]
    """transformer, hypertransformer, a baseline, or package.module:Class (Equinox, PyTorch or Flax)."""
    preset: Literal["smoke", "quick", "full"] = "full"
    """full: three tasks, three supports, three seeds. quick: the first seed of the three tasks, a part of full, for a
    laptop. smoke: a test that it runs."""
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FIELD=VALUE ...")] = ()
    """Changes to the model and its optimiser, such as model.options.width=128 optimizer.learning_rate=0.0003."""
    out: OptionalPath = None
    """The directory for the runs and the result. Default: runs/recombine-v1-MODEL."""
    where: Executor = field(default_factory=Executor)
    dry_run: bool = False
    """Only list the runs, and how long they would take on this machine."""
    resume_anyway: bool = False
    """Resume runs even if they were made with other settings or versions."""
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        from recombine.run.machine import prepare

        prepare(1 if self.dry_run else None, compile_quickly=self.preset == "smoke")
        from recombine.config.toml import parse_changes
        from recombine.jobs.benchmark_runs import benchmark_config, benchmark_runs
        from recombine.jobs.paper_runs import safe_name
        from recombine.storage.writer import check_run_path

        config = benchmark_config(self.model, parse_changes(self.set))
        wanted = benchmark_runs(config, self.preset)
        smoke = "-smoke" if self.preset == "smoke" else ""  # its runs have other sizes
        out = self.out or Path("runs") / f"recombine-v1-{safe_name(config.model.label)}{smoke}"
        self.where.check(out, self.dry_run)
        for name in wanted:
            check_run_path(out / name)
        if isinstance(config.model, CustomModelConfig):
            from recombine.model.custom import check_custom, import_model

            import_model(config.model.kind)
            check_custom(next(iter(wanted.values())))
        if self.dry_run:
            self._estimate(wanted, out)
            return
        from recombine.jobs.plan import check_same
        from recombine.run.signals import run_interruptibly
        from recombine.storage.locking import coordinating

        if not self.resume_anyway:
            check_same(wanted, out)
        with coordinating(out):
            note(headline(wanted, self.where, out))
            failed = run_interruptibly(lambda stop: self._train(wanted, out, stop), note)
            for name, error in failed.items():
                note(f"{name} failed: {error}")
            if failed:
                raise Failed(
                    f"{len(failed)} of the runs failed: {', '.join(failed)}; the same command tries them again"
                )
            self._finish(config, out)

    def _train(self, wanted: "dict[str, Config]", out: Path, stop: "StopSignal") -> dict[str, str]:
        from recombine.jobs.plan import jobs_to_do

        jobs = [job for job in jobs_to_do(wanted, out, [], self.resume_anyway) if job.kind == "train"]
        return execute_jobs(jobs, self.where, out, wanted, stop)

    def _finish(self, config: "Config", out: Path) -> None:
        from recombine.exam.benchmark import NAME
        from recombine.jobs.benchmark_runs import write_result

        path = out / (f"{NAME}.npz" if self.preset == "full" else f"{NAME}-{self.preset}.npz")
        result = write_result(out, config, self.preset, path, note)
        _print_result(str(path), result, self.json)

    def _estimate(self, wanted: "dict[str, Config]", out: Path) -> None:
        from recombine.jobs.plan import jobs_to_do

        jobs = [job for job in jobs_to_do(wanted, out, [], self.resume_anyway) if job.kind == "train"]
        found = estimate_jobs(jobs, self.where)
        if self.json:
            print_json({"runs": list(wanted), "seconds_each": found.each} | found.as_json())
            return
        print_estimate(found, wanted)


@dataclass(frozen=True)
@plain_help
class Verify:
    """Check a result file of the benchmark: draw its episodes again, score its predictions, compare the scores."""

    result: tyro.conf.Positional[Path]
    """The .npz file that `recombine benchmark` wrote."""
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        check_path("result", self.result)
        from recombine.run.machine import prepare

        prepare()
        from recombine.exam.result import verify_result

        result = verify_result(self.result)
        _print_result(str(self.result), result, self.json)
        if not self.json:
            print_line(f"verified: the predictions of {len(result.runs)} runs have these scores")


def _print_result(path: str, result: "Result", as_json: bool) -> None:
    if as_json:
        from recombine.record.codec import plain

        print_json({"result": path, "score": result.score(), "core_hours": result.core_hours, **plain(result)})
        return
    from recombine.terminal.exam import print_result

    print_result(path, result)


def _one_run(path: Path) -> "RunSource":
    """The run at a path, or the only run below it. If there are several, raises an error that lists them."""
    from recombine.storage.source import CONFIG, require_runs

    check_path("runs", path)
    if path.is_dir() and not (path / CONFIG).is_file() and not any(path.iterdir()):
        raise InputError("runs", str(path), f"not a run directory: it has no {CONFIG}")
    found = require_runs(path)
    here = path.resolve()  # an archive has an absolute path
    inside = [source.path.resolve().relative_to(here).as_posix() for source in found]
    if len(inside) > 1:
        names = ", ".join(inside[:4]) + (" …" if len(inside) > 4 else "")
        raise InputError("runs", str(path), f"it contains several runs; name some of them: {names}")
    found[0].path = path / inside[0]  # show the path as the user gave it
    return found[0]
