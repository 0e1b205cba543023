"""`recombine reproduce`: trains every model of the paper and judges its claims."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from recombine.checks import check_choice, check_seed, check_size
from recombine.cli.arguments import Executor, OptionalInt, OptionalPath, plain_help
from recombine.cli.jobs import estimate_jobs, execute_jobs, headline, print_estimate
from recombine.config.preset import Preset
from recombine.errors import Failed, InputError
from recombine.terminal.output import note, print_json, print_line

if TYPE_CHECKING:
    from recombine.config.schema import Config
    from recombine.jobs.paper_runs import CatalogRun
    from recombine.run.signals import StopSignal

PANELS = ("A", "B", "C", "D", "appendix", "explicit", "interventions", "bottleneck")
SEEDS: dict[Preset, int] = {"smoke": 1, "quick": 1, "paper": 3}


@dataclass(frozen=True)
@plain_help
class Reproduce:
    """Reproduce every panel of the paper's figures and judge its claims. The same command resumes if interrupted."""

    preset: Preset = "quick"
    """paper: the paper's settings (a day). quick: smaller tasks and models (minutes). smoke: a check that it runs."""
    config: OptionalPath = None
    """A TOML file with changes to the preset."""
    model: Annotated[tuple[str, ...], tyro.conf.arg(metavar="MODEL ...")] = ()
    """package.module:Class: custom models to train in addition to the paper's two."""
    panels: Annotated[tuple[str, ...], tyro.conf.arg(metavar="PANEL ...")] = ()
    """Train only these panels: A, B, C, D, appendix, explicit, interventions, bottleneck. Default: all."""
    seed: int = 0
    """The first seed. A seed determines the teacher, the initial parameters and the data."""
    seeds: OptionalInt = None
    """Number of seeds. Default: 3 for the paper preset, otherwise 1."""
    out: OptionalPath = None
    """The directory for the runs and the report. Default: runs/reproduce-PRESET."""
    where: Executor = field(default_factory=Executor)
    dry_run: bool = False
    """Only list the runs, with the time that each would take on this machine."""
    resume_anyway: bool = False
    """Resume runs even if they were made with other settings or versions."""
    json: bool = False
    """Print JSON: the path of the page, the verdicts, the runs."""

    def run(self) -> None:
        from recombine.run.machine import prepare
        from recombine.storage.writer import check_run_path

        # Before a custom model is imported, which may start JAX. `smoke` spends nearly all its time compiling.
        prepare(1 if self.dry_run else None, compile_quickly=self.preset == "smoke")
        entries = self._entries()
        out = self.out or Path("runs") / f"reproduce-{self.preset}"
        self.where.check(out, self.dry_run)
        for entry in entries:
            check_run_path(out / entry.name)
        if self.model:
            from recombine.model.custom import check_custom

            for kind in self.model:
                for config in [entry.config for entry in entries if entry.config.model.kind == kind][:1]:
                    check_custom(config)
        if self.dry_run:
            self._estimate(entries, out)
            return
        from recombine.jobs.plan import check_same
        from recombine.run.signals import run_interruptibly
        from recombine.storage.locking import coordinating
        from recombine.study.collect import check_belongs

        wanted = {entry.name: entry.config for entry in entries}
        if not self.resume_anyway:
            check_same(wanted, out)
        check_belongs(out, wanted)
        with coordinating(out):
            note(f"{headline(wanted, self.where, out)}; the report: {out / 'report' / 'index.html'}")
            failed = run_interruptibly(lambda stop: self._train(wanted, out, stop), note)
            self._finish(out, failed)

    def _entries(self) -> "list[CatalogRun]":
        from recombine.jobs.paper_runs import paper_runs
        from recombine.storage.reader import read_tables

        check_seed("seed", self.seed)
        count = SEEDS[self.preset] if self.seeds is None else self.seeds
        check_size("seeds", count, most=1000)
        changes = read_tables(self.config) if self.config else {}
        if "seed" in changes:
            raise InputError("seed", changes["seed"], "seeds are named on the command line: --seed and --seeds")
        for name in self.panels:
            check_choice("panels", name, *PANELS)
        custom = []
        if self.model:
            from recombine.model.custom import import_model

            custom = [import_model(kind) for kind in dict.fromkeys(self.model)]
        entries = paper_runs(self.preset, changes, range(self.seed, self.seed + count), custom)
        if self.panels:
            entries = [entry for entry in entries if not set(self.panels).isdisjoint(entry.panels.split())]
            if not entries:
                raise InputError("panels", " ".join(self.panels), "no run belongs to them on this support")
        if not entries[0].config.task.support.held_out:
            note(f"support {entries[0].config.task.support.name} holds out no mask, so there will be no ood score")
        return entries

    def _train(self, wanted: "dict[str, Config]", out: Path, stop: "StopSignal") -> dict[str, str]:
        """Execute the missing runs, and return the errors of those that failed."""
        from recombine.jobs.plan import jobs_to_do
        from recombine.page.write_report import LiveReport

        jobs = jobs_to_do(wanted, out, ["scorecard"], self.resume_anyway)
        report = LiveReport([out], out / "report")
        return execute_jobs(jobs, self.where, out, wanted, stop, report.watch)

    def _finish(self, out: Path, failed: dict[str, str]) -> None:
        from recombine.page.write_report import write_report
        from recombine.study.summary import final_scores
        from recombine.terminal.tables import print_scores, print_verdicts

        for name, error in failed.items():
            note(f"{name} failed: {error}")
        study, verdicts, page = write_report([out], out / "report")
        if self.json:
            runs = {str(run.path): run.state for run in study.runs}
            print_json({"page": str(page), "runs": runs, "failed": failed, "verdicts": verdicts})
        else:
            for scores in final_scores(study):
                print_scores(scores)
            print_verdicts(verdicts)
            print_line(f"\nthe report: {page}")
        if failed:
            raise Failed(f"{len(failed)} of the runs failed: {', '.join(failed)}")

    def _estimate(self, entries: "Sequence[CatalogRun]", out: Path) -> None:
        from recombine.jobs.plan import jobs_to_do

        wanted = {entry.name: entry.config for entry in entries}
        found = estimate_jobs(jobs_to_do(wanted, out, ["scorecard"]), self.where)
        beside = {entry.name: entry.panels for entry in entries}
        rows = [
            {"run": name, "panels": panels, "done": name not in found.each, "seconds": found.each.get(name, 0.0)}
            for name, panels in beside.items()
        ]
        if self.json:
            print_json({"runs": rows} | found.as_json())
            return
        print_estimate(found, wanted, beside)
