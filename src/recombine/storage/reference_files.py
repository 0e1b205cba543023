"""The files of `references/`, beside the runs: computed once for each seed, support and N."""

import hashlib
import json
from pathlib import Path

from recombine.config.schema import Config
from recombine.config.toml import Tables, config_tables
from recombine.files import make_directories, read_file, replace_file, where_allowed
from recombine.record.codec import BadRecord, decode, encode
from recombine.record.reference import REFERENCE_NAMES, References, StoredReferences
from recombine.storage.source import REFERENCES, DirectorySource, RunSource

LARGEST = 1 << 20
FORMAT = 1  # of the file, and of what the references are: another number when one of them changes


def reference_file(config: Config) -> str:
    """The name of the file: it says what the scores depend on, and a hash says it exactly."""
    digest = hashlib.sha256(json.dumps(_depends(config), sort_keys=True).encode()).hexdigest()[:8]
    task = config.task
    support = "".join(c if c.isalnum() or c in "+-" else "_" for c in task.support.name)[:40]
    return f"{support}-N{task.episode_length}-seed{config.seed}-{digest}.json"


def stored_references(source: RunSource, config: Config) -> References | None:
    """The scores beside a run, if they are there."""
    try:
        return _scores(source.read_beside(REFERENCES, reference_file(config), LARGEST), config)
    except OSError:
        return None


def missing_references(directory: Path, config: Config) -> list[str]:
    """The references of a run that a directory of runs lacks: all, or those added since the others were stored."""
    stored = _read(directory, config)
    return [name for name in REFERENCE_NAMES if name not in stored]


def store_references(directory: Path, config: Config) -> References:
    """The scores that a directory of runs has for a run; computed, and stored, where they are missing."""
    return _completed(_read(directory, config), directory, config)


def references_of(source: RunSource, config: Config) -> References:
    """The scores beside a run; computed where they are missing, and stored if the run is in a directory."""
    directory = source.path.parent if isinstance(source, DirectorySource) else None
    return _completed(stored_references(source, config) or {}, directory, config)


def _completed(scores: References, directory: Path | None, config: Config) -> References:
    missing = [name for name in REFERENCE_NAMES if name not in scores]
    if not missing:
        return scores
    from recombine.measure.reference.score import reference_scores

    found = scores | reference_scores(config, missing)
    scores = {name: found[name] for name in REFERENCE_NAMES}
    if directory is not None:
        with where_allowed():
            make_directories(directory / REFERENCES)
            text = encode(StoredReferences(_depends(config), scores), indent=1)
            replace_file(directory / REFERENCES / reference_file(config), f"{text}\n".encode())
    return scores


def _read(directory: Path, config: Config) -> References:
    try:
        return _scores(read_file(directory / REFERENCES / reference_file(config), LARGEST), config) or {}
    except OSError:
        return {}


def _scores(data: bytes, config: Config) -> References | None:
    try:
        stored = decode(data, StoredReferences)
    except BadRecord:
        return None
    return stored.scores if stored.depends == _depends(config) else None


def _depends(config: Config) -> Tables:
    tables = config_tables(config)
    kept = {name: tables.get(name) for name in ("task", "seed", "teacher_seed")}
    return kept | {"episodes": config.measure.episodes, "format": FORMAT}
