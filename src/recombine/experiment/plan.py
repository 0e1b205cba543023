"""From runs that are wanted to the jobs that are still to be done."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from recombine.config import Config
from recombine.config_file import config_as_dict, differences, write_toml
from recombine.errors import InputError
from recombine.experiment.job import Job
from recombine.experiment.reference import REFERENCES_DIRECTORY, missing_references, reference_path
from recombine.experiment.rundir import CONFIG, is_done, run_config
from recombine.experiment.scorecard import read_scorecard
from recombine.experiment.sweep import read_selection
from recombine.experiment.trained import own_model
from recombine.train.step import compiled_part

After = Literal["scorecard", "selection"]
"""What is measured when a run is done."""


def jobs_to_do(
    wanted: Mapping[str, Config], out: Path, after: Iterable[After], resume_anyway: bool = False
) -> list[Job]:
    """The runs in order, and before the first that needs them, the references of its seed and support.

    Not all references first: the workers would all compile the same programs, each for itself.
    """
    after = list(after)
    directory = out / REFERENCES_DIRECTORY
    jobs: dict[str, Job] = {}
    for name, config in wanted.items():
        references = str(reference_path(directory, config))
        if references not in jobs and missing_references(directory, config):
            title = f"references {reference_path(directory, config).stem}"
            jobs[references] = Job(title, _request("references", config, directory))
        path = out / name
        if not (is_done(path) and all(_measured(path, kind, config) for kind in after)):
            more = {"resume_anyway": resume_anyway, "after": after, "shape": _shape(config)}
            jobs[name] = Job(name, _request("train", config, path) | more)
    return list(jobs.values())


def put_together(jobs: Iterable[Job], wanted: Mapping[str, Config], most: int) -> list[Job]:
    """With runs of one shape as one job, up to so many of them, at the place of the first."""
    found: list[Job] = []
    open_groups: dict[Any, int] = {}
    for job in jobs:
        config = wanted.get(job.name)
        shape = (compiled_part(config), config.measure) if config else None
        place = open_groups.get(shape)
        if shape is None or place is None or len(_runs(found[place])) >= most:
            open_groups[shape] = len(found)
            found.append(job)
            continue
        runs = [*_runs(found[place]), job.request]
        name = f"{Path(runs[0]['path']).name} and {len(runs) - 1} more"
        found[place] = Job(name, runs[0] | {"runs": runs})
    return found


def _runs(job: Job) -> list[dict[str, Any]]:
    return job.request.get("runs") or [job.request]


def check_same(wanted: Mapping[str, Config], out: Path) -> None:
    """Refuse, before anything starts, a directory that has runs of the same names and other settings."""
    for name, config in wanted.items():
        path = out / name
        if not (path / CONFIG).is_file():
            continue
        if changed := differences(config_as_dict(run_config(path)), config_as_dict(config)):
            shown = "; ".join(f"{field}: {old} → {new}" for field, (old, new) in changed.items())
            expected = f"a run of other settings is there ({shown}); name another --out (or --resume-anyway)"
            raise InputError("out", str(path), expected)


def _measured(path: Path, kind: After, config: Config) -> bool:
    stored = {"scorecard": read_scorecard, "selection": read_selection}[kind](path)
    return stored is not None and stored.get("step") == config.optimizer.num_steps


def _request(kind: str, config: Config, path: Path) -> dict[str, Any]:
    return {"kind": kind, "config": write_toml(config), "path": str(path), "own": own_model(config)}


def _shape(config: Config) -> str:
    """The same for runs that take the same programs."""
    return hashlib.sha256(repr(compiled_part(config)).encode()).hexdigest()[:16]
