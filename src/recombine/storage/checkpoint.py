"""Checkpoints: saved completely or not at all, verified when read, and two good ones kept at every instant.

A checkpoint is a directory `step-000001000` of plain files: `state.safetensors`, the texts that belong to the state
(the configuration, the metrics so far), and `manifest.json` with the SHA-256 of each file and of itself. It is written
under a temporary name, synced to the disk, renamed and read back; only then is the oldest checkpoint removed.
Checkpoints are ordered by step, not by time.
"""

import errno
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from recombine.errors import InputError
from recombine.files import (
    NotAFile,
    make_directory,
    read_file,
    remove_directory,
    rename,
    sync_directory,
    write_new,
)
from recombine.no_links import is_directory, names_below, stat_below
from recombine.record.codec import BadRecord, convert, plain
from recombine.record.run_state import Identity

FORMAT = 1
KEPT = 2
MOST_TRIES = 10  # to read a run that is saved again and again meanwhile
LARGEST_MANIFEST = 1 << 20
STATE, MANIFEST = "state.safetensors", "manifest.json"
SAVING, REMOVING, DAMAGED = ".saving", ".removing", "damaged-"
BEFORE = "-before"  # the previous version of a checkpoint whose step is being saved again, with one more row of metrics

T = TypeVar("T")
Manifest = dict[str, Any]  # raw JSON: its digest covers every key, also unknown ones


class Checkpoint(NamedTuple):
    """The arrays and texts of a run after `step` steps, and the identity of the code and machine that made them."""

    step: int
    arrays: dict[str, np.ndarray]
    texts: dict[str, str]
    identity: Identity


class DamagedCheckpoint(Exception):
    """A checkpoint is not as it was saved."""


def save_checkpoint(directory: Path, checkpoint: Checkpoint) -> Path:
    """Save a checkpoint, verify it, and remove all but the newest two."""
    for name, array in checkpoint.arrays.items():
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            raise ArithmeticError(f"{name} is not finite after {checkpoint.step} steps; the last checkpoint is kept")
    target = checkpoint_path(directory, checkpoint.step)
    files = {STATE: save(checkpoint.arrays)}
    files |= {name: text.encode() for name, text in checkpoint.texts.items()}
    manifest: Manifest = {"format": FORMAT, "step": checkpoint.step, "identity": plain(checkpoint.identity)}
    manifest["files"] = {name: {"bytes": len(data), "sha256": _sha256(data)} for name, data in files.items()}
    manifest["sha256"] = _manifest_hash(manifest)
    files[MANIFEST] = _manifest_bytes(manifest)

    saving = directory / SAVING
    _clear(saving)
    make_directory(saving)
    for name, data in files.items():
        write_new(saving / name, data)
    sync_directory(saving)
    if target.exists() or target.is_symlink():
        before = target.with_name(target.name + BEFORE)
        _remove(before)
        rename(target, before)
    rename(saving, target)
    sync_directory(directory)
    try:
        read_checkpoint(target)
    except DamagedCheckpoint as damage:
        set_aside(target)
        raise OSError(errno.EIO, f"the disk does not give back what was written ({damage})") from damage
    _prune(directory)
    return target


def _prune(directory: Path) -> None:
    """Remove all checkpoints that are older than the newest two good ones."""
    good: set[int] = set()
    for path in list_checkpoints(directory):
        step = _step_of(path)
        if len(good) == KEPT or step in good:
            _remove(path)
            continue
        try:
            read_checkpoint(path)
            good.add(step)
        except DamagedCheckpoint:
            pass  # damaged, but kept: it may be the only one


def _remove(path: Path) -> None:
    """Remove a checkpoint after renaming it, so that a directory called step-… is complete at every instant."""
    if path.exists() or path.is_symlink():
        removing = path.with_name(REMOVING)
        _clear(removing)
        rename(path, removing)
        remove_directory(removing)


def _clear(path: Path) -> None:
    """Remove the directory that a process left behind when it was killed while saving."""
    if path.exists() or path.is_symlink():
        remove_directory(path)


def checkpoint_path(directory: Path, step: int) -> Path:
    return directory / f"step-{step:09d}"


def list_checkpoints(directory: Path, below: Path | None = None) -> list[Path]:
    """Every checkpoint, damaged or not, the newest first."""
    names = [name for name in names_below(directory, below) if re.fullmatch(rf"step-\d{{9,10}}({BEFORE})?", name)]
    found = [directory / name for name in names]
    return sorted(found, key=lambda path: (_step_of(path), not path.name.endswith(BEFORE)), reverse=True)


def _step_of(path: Path) -> int:
    return int(path.name[5:].removesuffix(BEFORE))


def set_aside(path: Path) -> Path:
    """Rename a damaged checkpoint, so that it is no longer used but can still be inspected."""
    aside = path.with_name(DAMAGED + path.name)
    _clear(aside)
    rename(path, aside)
    return aside


def newest_good(
    directory: Path, read: Callable[[Path], T], below: Path | None = None
) -> tuple[T | None, list[DamagedCheckpoint]]:
    """The result of `read` for the newest good checkpoint, and the damage of newer ones. For a run of another process.

    That process may be saving: it removes a checkpoint, or replaces it by another of the same step, between the reads
    of two files. The second file then does not match the manifest, although nothing is damaged. So if the directory is
    no longer the same one, the newest checkpoint is looked for again.
    """
    damage: list[DamagedCheckpoint] = []
    for tries_left in reversed(range(MOST_TRIES)):
        damage = []
        for path in list_checkpoints(directory, below):
            before = _which(path, below)
            try:
                return read(path), damage
            except DamagedCheckpoint as error:
                if tries_left and (before is None or before != _which(path, below)):
                    break
                damage.append(error)
        else:
            break
    return None, damage


def _which(path: Path, below: Path | None) -> tuple[int, int] | None:
    """Identifies the directory that has this name now; None if there is none. A rename changes it."""
    found = stat_below(path, path.parent if below is None else below)
    return None if found is None else (found.st_ino, found.st_ctime_ns)


def read_checkpoint(path: Path, below: Path | None = None) -> Checkpoint:
    """Read a checkpoint. Raises `DamagedCheckpoint` if any bit has changed. Needs no more memory than its files."""
    step, identity, contents = _read_files(path, below)
    try:
        arrays = load(contents.pop(STATE))
    except SafetensorError as error:
        raise DamagedCheckpoint(f"{path.name}: {error}") from error
    return Checkpoint(step, arrays, _texts(path, contents), identity)


def read_texts(path: Path, below: Path | None = None) -> tuple[int, dict[str, str]]:
    """The step and the texts of a checkpoint, verified as by `read_checkpoint`, without reading the state."""
    step, _, contents = _read_files(path, below, without=STATE)
    return step, _texts(path, contents)


def _texts(path: Path, contents: Mapping[str, bytes]) -> dict[str, str]:
    try:
        return {name: data.decode() for name, data in contents.items()}
    except UnicodeDecodeError as error:
        raise DamagedCheckpoint(f"{path.name}: {error}") from error


def _read_files(path: Path, below: Path | None, without: str = "") -> tuple[int, Identity, dict[str, bytes]]:
    """The step, the identity and the files of a checkpoint. The size and the digest of each file are verified."""
    below = path.parent if below is None else below  # a checkpoint must not be a link
    if not is_directory(path, below):
        raise DamagedCheckpoint(f"{path.name} is not a directory")
    try:
        data = read_file(path / MANIFEST, LARGEST_MANIFEST, below)
        manifest = json.loads(data)
    except (NotAFile, ValueError, RecursionError) as error:
        raise DamagedCheckpoint(f"{path.name}: no readable manifest ({error})") from error
    step, files, identity = _check_manifest(path, manifest)
    if data != _manifest_bytes(manifest):
        raise DamagedCheckpoint(f"{path.name}: {MANIFEST} is not what was saved")
    contents = {}
    for name, entry in files.items():
        if name == without:
            continue
        try:
            data = read_file(path / name, entry["bytes"], below)
        except NotAFile as error:
            raise DamagedCheckpoint(f"{path.name}: {error}") from error
        if len(data) != entry["bytes"] or _sha256(data) != entry["sha256"]:
            raise DamagedCheckpoint(f"{path.name}: {name} is not what was saved")
        contents[name] = data
    return step, identity, contents


def _check_manifest(path: Path, manifest: Any) -> tuple[int, Mapping[str, Any], Identity]:
    """The manifest's step, files and identity. Even a forged manifest may not name a file outside the directory."""
    match manifest:
        case {
            "format": int(found),
            "step": int(step),
            "files": dict(files),
            "identity": dict(identity),
            "sha256": str(),
        }:
            if manifest.get("sha256") != _manifest_hash(manifest):
                raise DamagedCheckpoint(f"{path.name}: {MANIFEST} is not what was saved")
            if found != FORMAT:  # intact, but from another version: an error, not damage
                raise InputError("checkpoint", str(path), f"has format {found}; this version reads format {FORMAT}")
        case _:
            raise DamagedCheckpoint(f"{path.name}: {MANIFEST} lacks required fields")
    if path.name.removesuffix(BEFORE) != checkpoint_path(path.parent, step).name:
        raise DamagedCheckpoint(f"{path.name}: {MANIFEST} is that of step {step}")
    for name, entry in files.items():
        if not re.fullmatch(r"[a-z_]+\.[a-z]+", name):
            raise DamagedCheckpoint(f"{path.name}: {MANIFEST} names the file {name!r}")
        match entry:
            case {"bytes": int(), "sha256": str()}:
                pass
            case _:
                raise DamagedCheckpoint(f"{path.name}: {MANIFEST} lacks the size or the SHA-256 of {name}")
    if STATE not in files:
        raise DamagedCheckpoint(f"{path.name}: {MANIFEST} names no {STATE}")
    try:
        return step, files, convert(identity, Identity)
    except BadRecord as error:
        raise DamagedCheckpoint(f"{path.name}: {MANIFEST}: {error}") from error


def _manifest_bytes(manifest: Manifest) -> bytes:
    return json.dumps(manifest, indent=2, sort_keys=True).encode()


def _manifest_hash(manifest: Manifest) -> str:
    rest = {name: value for name, value in manifest.items() if name != "sha256"}
    return _sha256(json.dumps(rest, sort_keys=True).encode())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
