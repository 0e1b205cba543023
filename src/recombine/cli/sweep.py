"""`recombine sweep`: a grid of configurations."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from recombine.checks import check_seed, check_size
from recombine.cli.jobs import work_off
from recombine.cli.printing import note, print_json, print_line
from recombine.errors import Failed, InputError
from recombine.experiment.grid import NAMED, read_grid, sweep_runs
from recombine.preset import Preset

if TYPE_CHECKING:
    from recombine.config import Config
    from recombine.experiment.grid import SweepRun
    from recombine.experiment.interrupt import StopRequest


@dataclass(frozen=True)
class Sweep:
    """Every configuration of a grid, each with every seed. Rerun it, and it goes on."""

    grid: Annotated[str | None, tyro.conf.arg(metavar="GRID")] = None
    """paper-transformer or paper-hypertransformer (Table 3), or a TOML file with a table [grid]."""
    preset: Preset = "quick"
    """What the grid's fields are changes to."""
    seed: int = 0
    """The first seed."""
    seeds: int = 3
    """How many seeds of each configuration."""
    sample: int | None = None
    """Only so many configurations, drawn at random, the same ones every time."""
    max_runs: int | None = None
    """Only the first so many runs."""
    out: Path | None = None
    """The directory of the runs; runs/sweep-GRID-PRESET where it is not given."""
    workers: int | None = None
    """Runs at a time, each in a single-threaded process; one per core where it is not given."""
    dry_run: bool = False
    """List the runs, the steps and the time they would take on this machine."""
    resume_anyway: bool = False
    """Go on although settings or versions are not those the runs were made with."""
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        from recombine.experiment.machine import available_cores, prepare
        from recombine.experiment.rundir import check_run_path

        runs = self._runs()
        prepare(1 if self.dry_run else None)
        assert self.grid is not None
        out = self.out or Path("runs") / f"sweep-{Path(self.grid).stem}-{self.preset}"
        if self.workers is not None:
            check_size("workers", self.workers, most=4096)
        for run in runs:
            check_run_path(out / run.name)
        workers = self.workers or available_cores()
        wanted = {run.name: run.config for run in runs}
        if self.dry_run:
            self._estimate(wanted, out, workers)
            return
        from recombine.experiment.interrupt import run_interruptibly

        note(f"{len(runs)} runs, {workers} at a time, in {out}")
        failed = run_interruptibly(lambda request: self._train(wanted, out, workers, request), note)
        self._finish(wanted, out, failed)

    def _runs(self) -> "list[SweepRun]":
        if self.grid is None:
            raise InputError("grid", None, f"name one: {', '.join(NAMED)}, or a TOML file")
        check_seed("seed", self.seed)
        check_size("seeds", self.seeds, most=1000)
        for name in ("sample", "max_runs"):
            if (value := getattr(self, name)) is not None:
                check_size(name, value, most=10**6)
        if self.sample is not None and self.max_runs is not None:
            raise InputError("max_runs", self.max_runs, "with --sample there is no need of it; leave one of them out")
        runs = sweep_runs(read_grid(self.grid), self.preset, range(self.seed, self.seed + self.seeds), self.sample)
        return runs[: self.max_runs]

    def _train(self, wanted: "dict[str, Config]", out: Path, workers: int, request: "StopRequest") -> dict[str, str]:
        from recombine.experiment.plan import check_same, jobs_to_do

        if not self.resume_anyway:
            check_same(wanted, out)
        jobs = jobs_to_do(wanted, out, ["selection"], self.resume_anyway)
        return work_off(jobs, wanted, workers, request)

    def _finish(self, wanted: "dict[str, Config]", out: Path, failed: dict[str, str]) -> None:
        from recombine.experiment.plan import is_done

        done = sum(is_done(out / name) for name in wanted)
        if self.json:
            print_json({"out": str(out), "runs": len(wanted), "done": done, "failed": failed})
        else:
            print_line(f"{done} of {len(wanted)} runs done, in {out}")
        if failed:
            raise Failed(f"{len(failed)} failed: " + "; ".join(f"{name}: {error}" for name, error in failed.items()))

    def _estimate(self, wanted: "dict[str, Config]", out: Path, workers: int) -> None:
        from recombine.experiment.estimate import seconds_per_run
        from recombine.experiment.plan import is_done
        from recombine.report.rate import duration

        left = {name: config for name, config in wanted.items() if not is_done(out / name)}
        seconds = dict(zip(left, seconds_per_run(list(left.values()), note), strict=True))
        steps = sum(config.optimizer.num_steps for config in left.values())
        total = sum(seconds.values()) / workers
        if self.json:
            print_json({"runs": list(wanted), "seconds_each": seconds, "steps": steps, "seconds": total})
            return
        for name in wanted:
            print_line(f"{name}  {duration(seconds[name]) if name in seconds else 'done'}")
        what = f"{len(wanted)} runs, {len(left)} to do, {steps:,} steps, {workers} at a time"
        print_line(f"{what}: about {duration(total)} on this machine")
