"""`recombine sweep`: trains a grid of configurations, and shows the results."""

from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from recombine.checks import check_seed, check_size
from recombine.cli.arguments import Executor, OptionalClass, OptionalInt, OptionalPath, plain_help
from recombine.cli.jobs import estimate_jobs, execute_jobs, headline, print_estimate
from recombine.cli.report import default_report
from recombine.config.model import SHIPPED
from recombine.config.preset import Preset
from recombine.config.schema import custom_task
from recombine.errors import Failed, InputError
from recombine.files import check_path
from recombine.jobs.grid import NAMED, read_grid, sweep_runs
from recombine.terminal.output import note, print_csv, print_json, print_line

if TYPE_CHECKING:
    from recombine.config.schema import Config
    from recombine.jobs.grid import SweepRun
    from recombine.run.signals import StopSignal


@dataclass(frozen=True)
@plain_help
class Run:
    """Train every configuration of a grid with every seed. The same command resumes."""

    grid: Annotated[str | None, tyro.conf.arg(metavar="GRID")] = None
    """paper-transformer or paper-hypertransformer (Table 3), or a TOML file with a table [grid]."""
    model: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    """package.module:Class: a custom model that the grid names in model.kind."""
    task: OptionalClass = None
    """package.module:Class: a custom task that the grid names in task.kind."""
    preset: Preset = "quick"
    """The preset that the grid changes."""
    seed: int = 0
    """The first seed."""
    seeds: int = 3
    """Number of seeds of each configuration."""
    sample: OptionalInt = None
    """Train only this many configurations, a random subset that is the same every time."""
    max_runs: OptionalInt = None
    """Train only the first runs, at most this many."""
    out: OptionalPath = None
    """The directory for the runs. Default: runs/sweep-GRID-PRESET."""
    where: Executor = field(default_factory=Executor)
    dry_run: bool = False
    """Only list the runs, their steps and the time they would take on this machine."""
    resume_anyway: bool = False
    """Resume runs even if they were made with other settings or versions."""
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        from recombine.run.machine import prepare
        from recombine.storage.writer import check_run_path

        runs = self._runs()
        prepare(1 if self.dry_run else None)
        if self.model:
            from recombine.model.custom import check_custom, import_model

            import_model(self.model)
            for config in [run.config for run in runs if run.config.model.kind == self.model][:1]:
                check_custom(config)
        if self.task:
            from recombine.task.custom_task import check_custom_task, import_task

            import_task(self.task)
            for config in [run.config for run in runs if run.config.task.kind == self.task][:1]:
                check_custom_task(config.task)
        assert self.grid is not None
        out = self.out or Path("runs") / f"sweep-{Path(self.grid).stem}-{self.preset}"
        self.where.check(out, self.dry_run)
        for run in runs:
            check_run_path(out / run.name)
        wanted = {run.name: run.config for run in runs}
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
            failed = run_interruptibly(lambda stop: self._train(runs, out, stop), note)
        self._finish(out, failed)

    def _runs(self) -> "list[SweepRun]":
        if self.grid is None:
            raise InputError("grid", None, f"name one: {', '.join(NAMED)}, or a TOML file")
        check_seed("seed", self.seed)
        check_size("seeds", self.seeds, most=1000)
        for name in ("sample", "max_runs"):
            if (value := getattr(self, name)) is not None:
                check_size(name, value, most=10**6)
        if self.sample is not None and self.max_runs is not None:
            raise InputError("max_runs", self.max_runs, "cannot be combined with --sample; leave one of them out")
        runs = sweep_runs(read_grid(self.grid), self.preset, range(self.seed, self.seed + self.seeds), self.sample)
        if self.model and all(run.config.model.kind != self.model for run in runs):
            raise InputError("model", self.model, "no run of the grid uses it; name it in model.kind")
        for kind in {run.config.model.kind for run in runs if ":" in run.config.model.kind} - {self.model, *SHIPPED}:
            raise InputError("model.kind", kind, f"a class is imported only where the command names it: --model {kind}")
        if self.task and all(custom_task(run.config) != self.task for run in runs):
            raise InputError("task", self.task, "no run of the grid uses it; name it in task.kind")
        for kind in {kind for run in runs if (kind := custom_task(run.config))} - {self.task}:
            raise InputError("task.kind", kind, f"a class is imported only where the command names it: --task {kind}")
        return runs[: self.max_runs]

    def _train(self, runs: "list[SweepRun]", out: Path, stop: "StopSignal") -> dict[str, str]:
        from recombine.jobs.plan import jobs_to_do
        from recombine.storage.sweep_list import write_list

        wanted = {run.name: run.config for run in runs}
        write_list(out, (run.line() for run in runs))
        jobs = jobs_to_do(wanted, out, ["selection"], self.resume_anyway)
        return execute_jobs(jobs, self.where, out, wanted, stop)

    def _finish(self, out: Path, failed: dict[str, str]) -> None:
        for name, error in failed.items():
            note(f"{name} failed: {error}")
        if self.json:
            print_json({"out": str(out), "failed": failed})
        else:
            print_line(f"the runs: {out}; to see the results: recombine sweep results {out}")
        if failed:
            raise Failed(f"{len(failed)} of the runs failed: {', '.join(failed)}")

    def _estimate(self, wanted: "dict[str, Config]", out: Path) -> None:
        from recombine.jobs.plan import jobs_to_do

        found = estimate_jobs(jobs_to_do(wanted, out, ["selection"]), self.where)
        each = {name: found.each[name] for name in wanted if name in found.each}
        steps = sum(wanted[name].optimizer.num_steps for name in each)
        if self.json:
            print_json({"runs": list(wanted), "seconds_each": each, "steps": steps} | found.as_json())
            return
        print_estimate(found, wanted)


@dataclass(frozen=True)
@plain_help
class Results:
    """Show the best configurations of a sweep and the importance of each field, and write a page with both."""

    directory: tyro.conf.Positional[Path]
    """The directory of the sweep."""
    top: int = 10
    """Number of configurations to show."""
    sql: Annotated[str | None, tyro.conf.arg(metavar="QUERY")] = None
    """Print the result of this query on the table `runs` instead, such as "SELECT avg(ood) FROM runs"."""
    json: bool = False
    """Print JSON."""
    csv: bool = False
    """Print CSV: the table `runs`, or the result of the query."""

    def run(self) -> None:
        from recombine.storage.sweep_list import LIST, has_list

        check_size("top", self.top, most=10**6)
        check_path("directory", self.directory)
        if not has_list(self.directory):
            raise InputError("directory", str(self.directory), f"not the directory of a sweep: it has no {LIST}")
        if self.json and self.csv:
            raise InputError("csv", True, "cannot be combined with --json; leave one of them out")
        if self.sql is not None or self.csv:
            self._query("SELECT * FROM runs" if self.sql is None else self.sql)
            return
        from recombine.study.sweep_results import sweep_results
        from recombine.terminal.sweep_tables import print_results, summary_of

        results = sweep_results(self.directory)
        if self.json:
            print_json(summary_of(results, self.top))
            return
        print_results(results, self.top)
        if results.ranked:
            from recombine.page.sweep import write_sweep_report

            print_line(f"the page: {write_sweep_report(results, default_report(self.directory))}")

    def _query(self, sql: str) -> None:
        from recombine.study.sweep_results import sweep_table

        connection, _ = sweep_table(self.directory)
        import duckdb

        try:
            cursor = connection.execute(sql)
            if cursor is None:
                raise InputError("sql", sql, 'a query, such as "SELECT avg(ood) FROM runs"')
            names = [column[0] for column in cursor.description or ()]
            rows = cursor.fetchall()
        except duckdb.Error as error:
            raise InputError("sql", sql, " ".join(str(error).split())) from error
        if self.csv:
            print_csv(dict(zip(names, map(_as_json, row), strict=True)) for row in rows)
            return
        if self.json:
            print_json([dict(zip(names, map(_as_json, row), strict=True)) for row in rows])
            return
        from recombine.terminal.sweep_tables import print_rows

        print_rows(names, rows)


def _as_json(value: object) -> object:
    """A value of a table, converted for JSON."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else str(value)


@dataclass(frozen=True)
@plain_help
class Sweep:
    """Train a grid of configurations, and show the results.

    Without a subcommand, `sweep` means `sweep run`, whose options `sweep run --help` lists.
    """

    command: Annotated[
        Annotated[Run, tyro.conf.subcommand("run")] | Annotated[Results, tyro.conf.subcommand("results")],
        tyro.conf.arg(name=""),
    ]

    def run(self) -> None:
        self.command.run()
