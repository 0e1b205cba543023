"""Arguments that several commands share, such as where to execute jobs."""

from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import tyro

from recombine.checks import check_number, check_size
from recombine.config.schema import Config, custom_task
from recombine.errors import InputError
from recombine.files import check_name
from recombine.terminal.output import note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recombine.jobs.protocol import Job, JobEvent
    from recombine.run.signals import StopSignal


T = TypeVar("T")


def _hint(default: str) -> str:
    """The default that follows an option's help. Empty if the default is no value; the help then says what happens."""
    return "" if default in ("None", "", "False") or "MISSING" in default else f"(default: {default})"


def plain_help(command: type[T]) -> type[T]:
    """A command whose help shows only defaults that are values. Below `@dataclass`."""
    for name, kind in command.__annotations__.items():
        if not is_dataclass(kind) and name != "command":
            command.__annotations__[name] = Annotated[kind, tyro.conf.arg(help_behavior_hint=_hint)]
    return command


OptionalInt = Annotated[int | None, tyro.conf.arg(metavar="INT")]
OptionalClass = Annotated[str | None, tyro.conf.arg(metavar="CLASS")]
OptionalPath = Annotated[Path | None, tyro.conf.arg(metavar="PATH")]


def name_task(config: Config, named: str | None) -> Config:
    """The configuration with the task class that the command names. A file alone never causes an import."""
    if named is not None:
        config = replace(config, task=replace(config.task, kind=named))
    elif (kind := custom_task(config)) is not None:
        raise InputError("task.kind", kind, f"a class is imported only where the command names it: --task {kind}")
    return config


@dataclass(frozen=True)
@plain_help
class Executor:
    """Where to execute the runs."""

    executor: Literal["local", "ray", "slurm"] = "local"
    """On this machine, as tasks of a Ray cluster, or as jobs of a SLURM cluster."""
    workers: OptionalInt = None
    """Number of runs at a time, each in its own process. Default: one per GPU if there are any, otherwise one per core;
    on a cluster, as many as it allows."""
    gpus: float = 0.0
    """GPUs that each run reserves, on Ray; 0.5 puts two runs on one. (On SLURM: --slurm gres=gpu:1.)"""
    vmap: int = 1
    """Train up to this many same-shape runs (seeds, for instance) in one vmapped program. For GPUs."""
    retries: int = 2
    """How many times to retry a run that failed, or whose worker was killed."""
    address: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None
    """Address of an existing Ray cluster, or auto. Default: start Ray on this machine."""
    slurm: Annotated[tuple[str, ...], tyro.conf.arg(metavar="OPTION=VALUE ...")] = ()
    """Options of sbatch by their long names, such as partition=cpu, time=120 (minutes) or mem=4G."""

    def check(self, out: Path, dry_run: bool = False) -> None:
        """Refuse contradictory options and clusters that cannot be reached, before anything is written.

        A dry run needs no cluster: it may be asked for on a laptop.
        """
        check_name("out", out.resolve())  # a worker is told where it is, in JSON
        if self.workers is not None:
            check_size("workers", self.workers, most=100_000)
        check_size("retries", self.retries, least=0, most=1000)
        check_size("vmap", self.vmap, most=4096)
        check_number("gpus", self.gpus, least=0.0, most=64.0)
        if self.gpus and self.executor != "ray":
            how = "add --executor ray" if self.executor == "local" else "on SLURM: --slurm gres=gpu:1"
            raise InputError("gpus", self.gpus, f"is for Ray; {how}")
        if self.vmap > 1 and self.executor == "ray":
            raise InputError("vmap", self.vmap, "only with --executor local or slurm; on Ray each run is a task")
        if self.address is not None and self.executor != "ray":
            raise InputError("address", self.address, "is for Ray; add --executor ray")
        if self.slurm and self.executor != "slurm":
            raise InputError("slurm", self.slurm[0], "is for SLURM; add --executor slurm")
        if self.executor == "slurm":
            from recombine.jobs.executor.slurm_queue import Queue, slurm_options

            options = slurm_options(self.slurm)
            if dry_run:
                return
            if said := Queue(out.resolve(), options, self.workers).check():
                note(f"SLURM has no suitable node now, and may never have one: {said}")
        if self.executor == "ray" and not dry_run:
            from recombine.jobs.executor.ray import check_address, check_ray

            check_ray()
            if self.address is not None:
                check_address(self.address)

    @property
    def at_a_time(self) -> int | None:
        """The number of runs at a time. None if the cluster decides."""
        from recombine.run.machine import available_cores, visible_gpus

        return self.workers or (len(visible_gpus()) or available_cores() if self.executor == "local" else None)

    @property
    def pace(self) -> str:
        return f"{self.at_a_time} at a time" if self.at_a_time else "as many at a time as the cluster allows"

    def execute(self, jobs: "list[Job]", out: Path, stop: "StopSignal") -> "Iterator[JobEvent]":
        if self.executor == "ray":
            from recombine.jobs.executor.ray import run_jobs_on_ray

            return run_jobs_on_ray(jobs, out, self.address, self.workers, stop, self.retries, self.gpus)
        if self.executor == "slurm":
            from recombine.jobs.executor.slurm import run_jobs_on_slurm
            from recombine.jobs.executor.slurm_queue import slurm_options

            return run_jobs_on_slurm(jobs, out, slurm_options(self.slurm), self.workers, stop, self.retries)
        from recombine.jobs.executor.local import run_jobs
        from recombine.run.machine import visible_gpus

        assert self.at_a_time is not None
        return run_jobs(jobs, self.at_a_time, stop, self.retries, visible_gpus())
