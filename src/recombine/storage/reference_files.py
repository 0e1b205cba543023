"""The stored scores of the references, in `references/` beside the runs: one file per seed, support and N."""

import hashlib
import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from recombine.config.schema import Config
from recombine.config.toml import Tables, config_tables
from recombine.errors import InputError
from recombine.files import NotAFile, make_directories, read_file, where_allowed
from recombine.record.codec import BadRecord
from recombine.record.reference import REFERENCE_NAMES, References, StoredReferences
from recombine.record.seal import Sealed, seal, unseal
from recombine.storage.integrity import references_code
from recombine.storage.locking import Writing, remove_leftovers, replace_shared
from recombine.storage.source import REFERENCES, DirectorySource, RunSource

LARGEST = 1 << 20
FORMAT = 1  # of the file; also changes when a reference is defined differently


Say = Callable[[str], None]


def ignore(_: str) -> None:
    """Discard a message."""


def reference_file(config: Config) -> str:
    """The name of the file: support, N and seed for people, and a hash of everything that the scores depend on."""
    digest = hashlib.sha256(json.dumps(_depends(config), sort_keys=True).encode()).hexdigest()[:8]
    task = config.task
    support = "".join(c if c.isalnum() or c in "+-" else "_" for c in task.support.name)[:40]
    return f"{support}-N{task.episode_length}-seed{config.seed}-{digest}.json"


def stored_references(source: RunSource, config: Config) -> Sealed[References] | None:
    """The scores stored beside a run. None if there are none."""
    name = reference_file(config)
    try:
        return _scores(source.read_beside(REFERENCES, name, LARGEST), config)
    except NotAFile:
        return None
    except BadRecord as error:
        what = f"its {REFERENCES}/{name} cannot be read ({error}); remove it, and `recombine eval` computes it again"
        raise InputError("run", str(source.path), what) from error


def missing_references(directory: Path, config: Config) -> list[str]:
    """The references whose scores a directory of runs lacks: all, or those added since the file was stored."""
    stored = _read(directory, config)
    return [name for name in REFERENCE_NAMES if name not in stored]


def store_references(directory: Path, config: Config, say: Say = ignore, writing: Writing = nullcontext) -> References:
    """The scores of the references for a run. Missing ones are computed and stored in the directory of runs."""
    remove_leftovers(directory / REFERENCES / reference_file(config))
    return _completed(_read(directory, config, say), directory, config, writing)


def references_of(source: RunSource, config: Config, say: Say = ignore, writing: Writing = nullcontext) -> References:
    """The scores beside a run. Missing ones are computed, and stored unless the run is in an archive."""
    if isinstance(source, DirectorySource):
        return store_references(source.path.parent, config, say, writing)
    found = _usable(lambda name: source.read_beside(REFERENCES, name, LARGEST), config, say)
    return _completed(found, None, config, writing)


def _completed(scores: References, directory: Path | None, config: Config, writing: Writing) -> References:
    missing = [name for name in REFERENCE_NAMES if name not in scores]
    if not missing:
        return scores
    from recombine.measure.reference.score import reference_scores

    found = scores | reference_scores(config, missing)
    scores = {name: found[name] for name in REFERENCE_NAMES}
    if directory is not None:
        with where_allowed():
            make_directories(directory / REFERENCES)
            sealed = seal(StoredReferences(_depends(config), scores), references_code(config))
            replace_shared(directory / REFERENCES / reference_file(config), sealed, writing)
    return scores


def _read(directory: Path, config: Config, say: Say = ignore) -> References:
    return _usable(lambda name: read_file(directory / REFERENCES / name, LARGEST), config, say)


def _usable(read: Callable[[str], bytes], config: Config, say: Say) -> References:
    """The stored scores, if they are intact and were computed by the current code; otherwise none."""
    name = reference_file(config)
    try:
        found = _scores(read(name), config)
    except BadRecord as error:
        say(f"{REFERENCES}/{name}: {error}; computing it again")
        return {}
    except OSError:
        return {}
    if found is None or found.measured_by(references_code(config)):
        return {} if found is None else found.value
    say(f"{REFERENCES}/{name} was computed by other code; computing it again")
    return {}


def _scores(data: bytes, config: Config) -> Sealed[References] | None:
    """The scores in a file. None if they belong to another configuration."""
    stored = unseal(data, StoredReferences)
    return Sealed(stored.value.scores, stored.sources) if stored.value.depends == _depends(config) else None


def _depends(config: Config) -> Tables:
    tables = config_tables(config)
    kept = {name: tables.get(name) for name in ("task", "seed", "teacher_seed")}
    return kept | {"episodes": config.measure.episodes, "format": FORMAT}
