"""Plans the jobs that are still needed for a set of runs."""

import hashlib
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path

import msgspec

from recombine.config.schema import Config, custom_model, custom_task
from recombine.config.toml import config_tables, differences, other_model, write_toml
from recombine.errors import InputError
from recombine.jobs.protocol import After, Job, JobPart
from recombine.jobs.selection import selection_is_stored
from recombine.run.examine import scorecard_is_stored
from recombine.storage.reader import is_done, run_config
from recombine.storage.reference_files import missing_references, reference_file
from recombine.storage.source import CONFIG, REFERENCES, DirectorySource
from recombine.train.step import compiled_part


def jobs_to_do(
    wanted: Mapping[str, Config], out: Path, after: Iterable[After], resume_anyway: bool = False
) -> list[Job]:
    """The missing runs in order. A job for the references of a seed and support precedes the first run that needs them.

    Not all references come first: the workers would all compile the same programs at once.
    """
    after = tuple(after)
    jobs: dict[str, Job] = {}
    for name, config in wanted.items():
        references = reference_file(config)
        if references not in jobs and missing_references(out, config):
            stem = Path(references).stem
            short = f"references {stem.rpartition('-')[0]}"  # without the digest, unless other sizes have the same name
            title = f"references {stem}" if any(job.name == short for job in jobs.values()) else short
            parts = (JobPart(write_toml(config), str(out / REFERENCES)),)
            model, task = custom_model(config), custom_task(config)
            jobs[references] = Job(name=title, kind="references", parts=parts, custom=model, custom_task=task)
        path = out / name
        if not (is_done(DirectorySource(path)) and all(_measured(path, kind, config) for kind in after)):
            jobs[name] = Job(
                name=name,
                kind="train",
                parts=(JobPart(write_toml(config), str(path)),),
                custom=custom_model(config),
                custom_task=custom_task(config),
                resume_anyway=resume_anyway,
                after=after,
                shape=_shape(config),
            )
    return list(jobs.values())


def put_together(jobs: Iterable[Job], wanted: Mapping[str, Config], most: int) -> list[Job]:
    """Merge same-shape runs into jobs of up to `most` runs each. A merged job takes the place of its first run."""
    found: list[Job] = []
    open_groups: dict[Hashable, int] = {}
    for job in jobs:
        config = wanted.get(job.name)
        shape = (compiled_part(config), config.measure) if config else None
        place = open_groups.get(shape)
        if shape is None or place is None or len(found[place].parts) >= most:
            open_groups[shape] = len(found)
            found.append(job)
            continue
        first = found[place]
        parts = (*first.parts, *job.parts)
        name = f"{first.path.name} and {len(parts) - 1} more"
        found[place] = msgspec.structs.replace(first, name=name, parts=parts)
    return found


def check_same(wanted: Mapping[str, Config], out: Path) -> None:
    """Refuse a directory whose runs have the same names but other settings, before anything starts."""
    for name, config in wanted.items():
        path = out / name
        if not (path / CONFIG).is_file():
            continue
        if changed := differences(config_tables(run_config(path)), config_tables(config)):
            shown = "; ".join(f"{field}: {old} → {new}" for field, (old, new) in changed.items())
            resume = "" if other_model(changed) else " (or --resume-anyway)"
            expected = f"a run with other settings is there ({shown}); name another --out{resume}"
            raise InputError("out", str(path), expected)


def _measured(path: Path, kind: After, config: Config) -> bool:
    is_stored = scorecard_is_stored if kind == "scorecard" else selection_is_stored
    return is_stored(DirectorySource(path), config, config.optimizer.num_steps)


def _shape(config: Config) -> str:
    return hashlib.sha256(write_toml(compiled_part(config)).encode()).hexdigest()[:16]
