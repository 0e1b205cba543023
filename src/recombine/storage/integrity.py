"""Verifies a run's configuration and metrics: are they as they were written?

A checkpoint contains a verified copy of both files, and an export contains a manifest of digests. If a file differs
from the copy in the checkpoint, the copy is used and the difference is reported.

A stored measurement is shown only if the code that it depends on is unchanged: the digests of that code are here, too.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

from recombine.code_digest import model_digest, package_digest
from recombine.config.schema import Config, custom_model, custom_task
from recombine.errors import InputError
from recombine.files import NotAFile
from recombine.record.codec import BadRecord, Record
from recombine.record.seal import seal, unseal
from recombine.storage.checkpoint import DamagedCheckpoint, list_checkpoints, newest_good, read_texts
from recombine.storage.source import CHECKPOINTS, CONFIG, METRICS, DirectorySource, RunSource

MANIFEST = "manifest.json"  # in an exported run
LARGEST_CONFIG, LARGEST_METRICS, LARGEST_MANIFEST = 1 << 20, 1 << 28, 1 << 20


class Recorded(NamedTuple):
    """The texts of a run's configuration and metrics, and notes on any damage that was found."""

    config: str
    metrics: str
    notes: tuple[str, ...]


class ExportManifest(Record, frozen=True):
    """The SHA-256 of each file of an exported run."""

    files: dict[str, str]


def recorded(source: RunSource) -> Recorded:
    """The configuration and the metrics of a run. An edited export is refused.

    Rows of metrics that are in no checkpoint yet are left out: they cannot be verified, and resuming makes them again.
    """
    copies, notes = _copies(source)
    if copies is None:
        config = _read(source, CONFIG, LARGEST_CONFIG)
        metrics = _read(source, METRICS, LARGEST_METRICS) if source.has(METRICS) else b""
        check_exported(source, {CONFIG: config, METRICS: metrics})
        return Recorded(config.decode(errors="replace"), metrics.decode(errors="replace"), tuple(notes))
    step, texts = copies
    for name, most in ((CONFIG, LARGEST_CONFIG), (METRICS, LARGEST_METRICS)):
        try:
            same = source.read(name, most).startswith(texts[name].encode())
        except OSError:
            same = False
        if not same:
            notes.append(f"{name} is damaged or edited; the copy in the checkpoint of step {step} is used instead")
    return Recorded(texts[CONFIG], texts[METRICS], tuple(notes))


def check_exported(source: RunSource, files: dict[str, bytes]) -> None:
    """Refuse files of an exported run that have changed since the export. Older exports have no manifest."""
    if not source.has(MANIFEST):
        return
    try:
        manifest = unseal(source.read(MANIFEST, LARGEST_MANIFEST), ExportManifest).value
    except (NotAFile, BadRecord) as error:
        raise InputError("run", str(source.path), f"its {MANIFEST} cannot be read ({error})") from error
    for name, data in files.items():
        if manifest.files.get(name) != _sha256(data):
            raise InputError("run", str(source.path), f"its {name} has changed since it was exported")


def export_manifest(files: dict[str, bytes]) -> bytes:
    """The manifest of a run's exported files."""
    return seal(ExportManifest({name: _sha256(data) for name, data in files.items()}), sources="")


def _copies(source: RunSource) -> tuple[tuple[int, dict[str, str]] | None, list[str]]:
    """The step and the texts of the newest good checkpoint, and notes on newer ones that are damaged."""
    if not isinstance(source, DirectorySource):
        return None, []
    checkpoints, below = source.path / CHECKPOINTS, source.below
    try:
        list_checkpoints(checkpoints, below)
    except OSError as error:
        return None, [f"{CHECKPOINTS} cannot be read ({error.strerror}): the metrics cannot be verified"]

    def read(path: Path) -> tuple[int, dict[str, str]]:
        step, texts = read_texts(path, below)
        if not {CONFIG, METRICS} <= texts.keys():
            raise DamagedCheckpoint(f"{path.name} lacks {CONFIG} or {METRICS}")
        return step, texts

    found, damage = newest_good(checkpoints, read, below)
    return found, [f"a checkpoint is damaged ({one}); the previous one is used instead" for one in damage]


def _read(source: RunSource, name: str, most: int) -> bytes:
    try:
        return source.read(name, most)
    except NotAFile as error:
        raise InputError("run", str(source.path), f"not a run directory: {error}") from error


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


REFERENCES_CODE = ("recombine.measure.reference.score",)
SCORECARD_CODE = ("recombine.measure.scorecard", "recombine.model.build")
SELECTION_CODE = (
    "recombine.measure.predict",
    "recombine.measure.r2",
    "recombine.task.evaluation",
    "recombine.model.build",
)


def code_of(config: Config, modules: tuple[str, ...]) -> str:
    """The digest of modules of the package, and of the run's custom model and custom task if it has them."""
    custom = custom_model(config)
    found = package_digest(*modules) if custom is None else f"{package_digest(*modules)}+{model_digest(custom)}"
    return _with_task(config, found)


def references_code(config: Config) -> str:
    """The digest of the code that the references depend on: the custom task's too, but not the model's."""
    return _with_task(config, package_digest(*REFERENCES_CODE))


def _with_task(config: Config, digest: str) -> str:
    custom = custom_task(config)
    return digest if custom is None else f"{digest}+{model_digest(custom)}"
