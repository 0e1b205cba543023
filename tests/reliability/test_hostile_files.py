"""An untrusted run directory executes no code, reads nothing outside itself, and needs memory bounded by its size."""

import ast
import hashlib
import json
import resource
import struct
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
import tomli_w

from recombine.errors import InputError
from recombine.record.codec import plain
from recombine.storage.checkpoint import DamagedCheckpoint, _manifest_bytes, _manifest_hash, read_checkpoint
from recombine.storage.reader import run_config
from tests.reliability.small_run import finish, without_copies
from tests.study.studies import MADE

SOURCE = Path(__file__).parents[2] / "src" / "recombine"


def test_nothing_unpickles_or_evaluates() -> None:
    forbidden = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not forbidden & {name.split(".")[0] for name in names}, path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"eval", "exec", "__import__"}, path
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant), path
                assert node.value.value is False, path


def forge(directory: Path, state: bytes, **files: bytes) -> Path:
    """Forge a checkpoint whose hashes are all correct."""
    path = directory / "step-000000001"
    path.mkdir()
    contents = {"state.safetensors": state, **files}
    manifest = {"format": 1, "step": 1, "identity": plain(MADE)}
    manifest["files"] = {n: {"bytes": len(d), "sha256": hashlib.sha256(d).hexdigest()} for n, d in contents.items()}
    manifest["sha256"] = _manifest_hash(manifest)
    (path / "manifest.json").write_bytes(_manifest_bytes(manifest))
    for name, data in contents.items():
        target = path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return path


def tensors(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


HOSTILE = {
    "header longer than the file": tensors({}, length=1 << 40),
    "header of 2⁶³ bytes": tensors({}, length=(1 << 64) - 1),
    "tensor beyond the file": tensors({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}),
    "shape that overflows": tensors(
        {"a": {"dtype": "F32", "shape": [1 << 62, 1 << 62], "data_offsets": [0, 4]}}, b"1234"
    ),
    "overlapping offsets": tensors(
        {
            "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
            "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
        },
        bytes(12),
    ),
    "hole": tensors({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, bytes(8)),
    "not JSON": struct.pack("<Q", 4) + b"{{{{",
    "a pickle": b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.",
    "empty": b"",
}


@pytest.mark.parametrize("state", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_states_are_refused(tmp_path: Path, state: bytes) -> None:
    path = forge(tmp_path, state)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = 4096 * int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), limits[1]))  # what it asks for, it does not get
    try:
        with pytest.raises(DamagedCheckpoint):
            read_checkpoint(path)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


GOOD = tensors({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, bytes(4))


@pytest.mark.parametrize("name", ["../outside.txt", "/etc/hostname", "a/b.txt", "..", ".hidden", "x\0.txt", "con:.txt"])
def test_a_manifest_cannot_name_a_file_elsewhere(tmp_path: Path, name: str) -> None:
    path = forge(tmp_path, GOOD)
    manifest = json.loads((path / "manifest.json").read_bytes())
    manifest["files"][name] = {"bytes": 5, "sha256": hashlib.sha256(b"inner").hexdigest()}
    manifest["sha256"] = _manifest_hash(manifest)
    (path / "manifest.json").write_bytes(_manifest_bytes(manifest))
    (tmp_path / "outside.txt").write_bytes(b"inner")
    with pytest.raises(DamagedCheckpoint, match="names the file"):
        read_checkpoint(path)


def test_links_are_not_followed(tmp_path: Path) -> None:
    path = forge(tmp_path, GOOD)
    assert read_checkpoint(path).step == 1
    secret = tmp_path / "secret"
    for name in ("state.safetensors", "manifest.json"):
        data = (path / name).read_bytes()
        secret.write_bytes(data)
        (path / name).unlink()
        (path / name).symlink_to(secret)
        with pytest.raises(DamagedCheckpoint):
            read_checkpoint(path)
        (path / name).unlink()
        (path / name).write_bytes(data)
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    with pytest.raises(DamagedCheckpoint):
        read_checkpoint(path)


@pytest.mark.parametrize("name", ["metrics.jsonl", "config.toml", "lock", "env.json", "timing.jsonl", "status.json"])
def test_a_run_does_not_write_through_a_link(tmp_path: Path, name: str) -> None:
    path, victim = tmp_path / "run", tmp_path / "victim"
    finish(path, stop_at=4)
    victim.write_text("precious")
    (path / name).unlink()
    (path / name).symlink_to(victim)
    with suppress(InputError, OSError):
        finish(path)
    assert victim.read_text() == "precious"


def test_a_configuration_that_names_a_class_imports_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run"
    finish(path, stop_at=4)
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')")
    text = (path / "config.toml").read_text()
    (path / "config.toml").write_text(text.replace('kind = "transformer"', 'kind = "trap:Model"'))
    finish(path)  # the checkpoint's own copy of the configuration is what counts
    assert 'kind = "transformer"' in (path / "config.toml").read_text()


def test_a_configuration_that_names_a_file_reads_nothing(tmp_path: Path) -> None:
    """Neither the masks nor any other content of that file is read."""
    path = tmp_path / "run"
    finish(path, stop_at=4)
    without_copies(path)
    text = (path / "config.toml").read_text()
    for content in ("not for others", "110000\n001100\n000011\n"):
        (tmp_path / "outside.txt").write_text(content)
        tables = tomllib.loads(text)
        tables["task"]["support"] = str(tmp_path / "outside.txt")
        (path / "config.toml").write_text(tomli_w.dumps(tables))
        with pytest.raises(InputError, match="in a run directory it is a table with its masks") as caught:
            run_config(path)
        assert "not for others" not in str(caught.value)
