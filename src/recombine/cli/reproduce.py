"""`recombine reproduce`: the main job."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from recombine.checks import check_seed, check_size
from recombine.cli.printing import note, print_json, print_line
from recombine.config_file import read_toml, write_toml
from recombine.errors import Failed, InputError
from recombine.preset import Preset

if TYPE_CHECKING:
    from recombine.experiment.catalog import Entry
    from recombine.experiment.executor.local import Job
    from recombine.experiment.interrupt import StopRequest

SEEDS: dict[Preset, int] = {"smoke": 1, "quick": 1, "paper": 3}


@dataclass(frozen=True)
class Reproduce:
    """Every panel of the paper's figures, from training to the verdict on each claim. Rerun it, and it goes on."""

    preset: Preset = "quick"
    """paper: the paper's settings, days. quick: smaller tasks and models, minutes. smoke: to see that it runs."""
    config: Path | None = None
    """A TOML file of changes to the preset."""
    model: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    """package.module:Class: a model of your own, beside the paper's two."""
    seed: int = 0
    """The first seed. A seed draws the teacher, the initial parameters and the data."""
    seeds: int | None = None
    """How many seeds: 1, and 3 for the paper preset, where it is not given."""
    out: Path | None = None
    """The directory of the runs and the report; runs/reproduce-PRESET where it is not given."""
    workers: int | None = None
    """Runs at a time, each in a single-threaded process; one per core where it is not given."""
    dry_run: bool = False
    """List the runs and how long each would take on this machine."""
    resume_anyway: bool = False
    """Go on although settings or versions are not those the runs were made with."""
    json: bool = False
    """Print JSON: the page's path, the verdicts, the runs."""

    def run(self) -> None:
        from recombine.experiment.machine import available_cores, prepare
        from recombine.experiment.rundir import check_run_path

        prepare(1 if self.dry_run else None)  # before a model of the user's own is imported, which may start JAX
        entries = self._entries()
        out = self.out or Path("runs") / f"reproduce-{self.preset}"
        if self.workers is not None:
            check_size("workers", self.workers, most=4096)
        for entry in entries:
            check_run_path(out / entry.name)
        workers = self.workers or available_cores()
        if self.model:
            from recombine.model.own import check_own

            check_own(next(entry.config for entry in entries if entry.config.model.kind == self.model))
        if self.dry_run:
            self._estimate(entries, out, workers)
            return
        from recombine.experiment.interrupt import run_interruptibly

        note(f"{len(entries)} runs, {workers} at a time, in {out}; the report: {out / 'report' / 'index.html'}")
        failed = run_interruptibly(lambda request: self._train(entries, out, workers, request), note)
        self._finish(out, failed)

    def _entries(self) -> "list[Entry]":
        from recombine.experiment.catalog import catalog

        check_seed("seed", self.seed)
        count = SEEDS[self.preset] if self.seeds is None else self.seeds
        check_size("seeds", count, most=1000)
        own = None
        changes = read_toml(self.config) if self.config else {}
        if "seed" in changes:
            raise InputError("seed", changes["seed"], "seeds are named on the command line: --seed and --seeds")
        if self.model:
            from recombine.model.own import import_model

            own = import_model(self.model)
        entries = catalog(self.preset, changes, range(self.seed, self.seed + count), own)
        if not entries[0].config.task.support.held_out:
            note(f"support {entries[0].config.task.support.name} holds nothing out: there will be no ood score")
        return entries

    def _train(self, entries: "Sequence[Entry]", out: Path, workers: int, request: "StopRequest") -> dict[str, str]:
        """Carry out what is missing; the errors of the runs that failed."""
        from recombine.experiment.executor.local import run_jobs
        from recombine.report.jobs import JobsDisplay
        from recombine.report.renew import ReportRenewal

        jobs = self._jobs(entries, out)
        failed: dict[str, str] = {}
        renewal = ReportRenewal([out], out / "report")
        totals = {entry.name: entry.config.optimizer.num_steps for entry in entries}
        with JobsDisplay({job.name: totals.get(job.name) for job in jobs}, workers) as display:
            for event in run_jobs(jobs, workers, request):
                display.update(event.job.name, event.kind, event.data)
                if event.kind == "failed":
                    failed[event.job.name] = event.data["error"]
                elif event.kind == "interrupted" and not request.requested():
                    failed[event.job.name] = "its worker was ended by a signal"
                try:
                    renewal.update(finished=event.kind == "done", has_rows=bool(event.data.get("row")))
                except Exception as error:  # a picture that fails ends no training; at the end it is an error
                    display.say(f"the report could not be written: {error}")
        return failed

    def _jobs(self, entries: "Sequence[Entry]", out: Path) -> "list[Job]":
        """What is to be done: the references of each seed and support first, which every picture needs."""
        from recombine.experiment.executor.local import Job
        from recombine.experiment.reference import REFERENCES_DIRECTORY, reference_path, stored_references
        from recombine.experiment.scorecard import read_scorecard
        from recombine.experiment.trained import own_model

        directory = out / REFERENCES_DIRECTORY
        jobs: dict[str, Job] = {}
        for entry in entries:
            if stored_references(directory, entry.config) is None:
                name = f"references {entry.config.task.support.name} seed {entry.config.seed}"
                request: dict[str, Any] = {
                    "kind": "references",
                    "config": write_toml(entry.config),
                    "path": str(directory),
                    "own": own_model(entry.config),
                }
                jobs.setdefault(str(reference_path(directory, entry.config)), Job(name, request))
        for entry in entries:
            path = out / entry.name
            if _is_done(path):
                self._check_same(entry, path)
                card = read_scorecard(path)
                if card is not None and card["step"] == entry.config.optimizer.num_steps:
                    continue
            request = {
                "kind": "train",
                "config": write_toml(entry.config),
                "path": str(path),
                "own": own_model(entry.config),
                "resume_anyway": self.resume_anyway,
            }
            jobs[entry.name] = Job(entry.name, request)
        return list(jobs.values())

    def _check_same(self, entry: "Entry", path: Path) -> None:
        """A finished run counts only if it is the run that is asked for."""
        from recombine.report.collect import run_config

        if run_config(path) != entry.config and not self.resume_anyway:
            raise InputError(
                "out", str(path), "a finished run of other settings is there; name another --out (or --resume-anyway)"
            )

    def _finish(self, out: Path, failed: dict[str, str]) -> None:
        from recombine.report.summary import final_scores
        from recombine.report.tables import print_scores, print_verdicts
        from recombine.report.write import write_report

        for name, error in failed.items():
            note(f"{name} failed: {error}")
        study, verdicts, page = write_report([out], out / "report")
        if self.json:
            runs = {str(run.path): run.status.get("state") for run in study.runs}
            found = [verdict.as_dict() for verdict in verdicts]
            print_json({"page": str(page), "runs": runs, "failed": failed, "verdicts": found})
        else:
            for title, models, references in final_scores(study):
                print_scores(title, models, references)
            print_verdicts(verdicts)
            print_line(f"\nthe report: {page}")
        if failed:
            raise Failed(f"{len(failed)} of the runs failed: {', '.join(failed)}")

    def _estimate(self, entries: "Sequence[Entry]", out: Path, workers: int) -> None:
        from recombine.experiment.estimate import seconds_per_run
        from recombine.report.jobs import duration

        rows = []
        seconds = seconds_per_run([entry.config for entry in entries], note)
        for entry, each in zip(entries, seconds, strict=True):
            done = _is_done(out / entry.name)
            rows.append({"run": entry.name, "panels": entry.panels, "done": done, "seconds": 0.0 if done else each})
        total = sum(row["seconds"] for row in rows) / workers
        if self.json:
            print_json({"runs": rows, "workers": workers, "seconds": total})
            return
        width = max(len(row["run"]) for row in rows)
        for row in rows:
            time = "done" if row["done"] else duration(row["seconds"])
            print_line(f"{row['run']:<{width}}  {row['panels']:<14}  {time:>9}")
        print_line(f"{len(rows)} runs, {workers} at a time: about {duration(total)} on this machine")


def _is_done(path: Path) -> bool:
    try:
        return json.loads((path / "status.json").read_text(encoding="utf-8"))["state"] == "done"
    except (OSError, ValueError, KeyError, TypeError):
        return False
