"""Files and paths that no command may trust, and the memory that they may take."""

import ast
import hashlib
import json
import os
import resource
import shlex
import signal
import struct
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import jax
import pytest
import tomli_w

import recombine.run.training as training
from recombine.cli.main import main
from recombine.errors import InputError
from recombine.jobs.execute import execute_job
from recombine.jobs.protocol import Job, JobPart
from recombine.record.codec import plain
from recombine.run.signals import StopSignal, run_interruptibly
from recombine.storage.checkpoint import (
    DamagedCheckpoint,
    _manifest_bytes,
    _manifest_hash,
    list_checkpoints,
    read_checkpoint,
)
from recombine.storage.reader import run_config
from tests.reliability.processes import command
from tests.reliability.small_run import SMALL, finish, result, small_config, without_copies
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
def test_hostile_states_are_refused(tmp_path: Path, state: bytes, attacked: Callable) -> None:
    attacked("a forged checkpoint")
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
def test_a_manifest_cannot_name_a_file_elsewhere(tmp_path: Path, name: str, attacked: Callable) -> None:
    attacked("a forged checkpoint")
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


ERRORS = {
    "Python's": MemoryError(),
    "JAX's": jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\nmore\nlines"),
    "the system's": OSError(12, "Cannot allocate memory"),
}


def fail_after(calls: int, function, error: BaseException):
    """The function, that many times; after that, the error."""
    left = iter(range(calls))

    def call(*args, **kwargs):
        if next(left, None) is None:
            raise error
        return function(*args, **kwargs)

    return call


@pytest.mark.parametrize("place", ["save_checkpoint", "measure_parts", "train"])
@pytest.mark.parametrize("kind", ERRORS)
def test_a_run(
    place: str,
    kind: str,
    tmp_path: Path,
    attacked: Callable,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    attacked("memory that runs out in a run")
    path = tmp_path / "run"
    calls = 0 if place == "train" else 2
    with monkeypatch.context() as patched:
        patched.setattr(training, place, fail_after(calls, getattr(training, place), ERRORS[kind]))
        assert main(command(path, settings=SMALL)) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    newest = list_checkpoints(path / "checkpoints")[0]
    assert "out of memory" in last
    assert f"step {read_checkpoint(newest).step} " in last
    status = json.loads((path / "status.json").read_text())
    assert status["state"] == "failed"
    assert "out of memory" in status["error"]
    assert main(command(path, settings=SMALL)) == 0
    finish(tmp_path / "whole")
    assert result(path) == result(tmp_path / "whole")


def test_a_job_of_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker hears of JAX's error as of Python's: the job has failed, and the worker takes the next."""
    from recombine.config.toml import write_toml

    job = Job(name="run", kind="train", parts=(JobPart(write_toml(small_config()), str(tmp_path / "run")),))
    monkeypatch.setattr(training, "init_state", fail_after(0, training.init_state, ERRORS["JAX's"]))
    with pytest.raises(MemoryError):
        execute_job(job, StopSignal(), lambda news: None)


def test_no_memory_for_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threading.Thread.start", fail_after(0, None, RuntimeError("can't start new thread")))
    with pytest.raises(MemoryError):
        run_interruptibly(lambda stop: None, lambda text: None)


def test_work_that_ends_without_an_outcome_is_not_said_to_be_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory may run out even for the error; a signal that came meanwhile does not mean that anything is saved."""
    monkeypatch.setattr("threading.Thread.run", lambda thread: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(MemoryError):
        run_interruptibly(lambda stop: None, lambda text: None)


@pytest.mark.parametrize(
    "arguments",
    [["train", "--out", "new"], ["task", "sample", "--out", "a.npz"], ["construct"], ["reproduce", "--out", "new"]],
    ids=" ".join,
)
def test_a_limit_under_which_jax_cannot_start(arguments: list[str], tmp_path: Path) -> None:
    limit = 2 << 20  # KiB
    shell = f"ulimit -v {limit}; exec {shlex.join([sys.executable, '-m', 'recombine', *arguments])}"
    result = subprocess.run(["sh", "-c", shell], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert str(limit) in result.stderr
    assert not list(tmp_path.iterdir())
