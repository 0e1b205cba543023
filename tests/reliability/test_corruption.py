"""Corruption never passes silently, and never restarts a run from nothing silently."""

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recombine.files
import recombine.storage.checkpoint
from recombine.errors import InputError
from recombine.storage.checkpoint import DamagedCheckpoint, list_checkpoints, read_checkpoint, save_checkpoint
from tests.reliability.small_run import NUM_STEPS, finish, result
from tests.reliability.test_disk_faults import make_checkpoint


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("saved"), make_checkpoint(10))


FILES = ("manifest.json", "metrics.jsonl", "state.safetensors")


@pytest.mark.parametrize("name", FILES)
def test_every_single_bit_flip_is_found(saved: Path, name: str, torture: bool, attacked: Callable) -> None:
    file = saved / name
    good = file.read_bytes()
    bits = range(8 * len(good))
    if not torture:
        bits = sorted({*bits[:: max(1, len(bits) // 400)], *bits[:256], *bits[-64:]})
    attacked("a flipped bit in a checkpoint", len(bits))
    try:
        for bit in bits:
            flipped = bytearray(good)
            flipped[bit // 8] ^= 1 << bit % 8
            file.write_bytes(flipped)
            with pytest.raises(DamagedCheckpoint):
                read_checkpoint(saved)
    finally:
        file.write_bytes(good)
    read_checkpoint(saved)


@pytest.mark.parametrize("name", FILES)
def test_truncation_growth_and_absence_are_found(saved: Path, name: str, attacked: Callable) -> None:
    file = saved / name
    good = file.read_bytes()
    try:
        lengths = range(0, len(good), max(1, len(good) // 97))
        changed = [*(good[:length] for length in lengths), good + b"\0", good * 2]
        attacked("a file of a checkpoint cut, extended or removed", len(changed) + 2)
        for bad in changed:
            file.write_bytes(bad)
            with pytest.raises(DamagedCheckpoint):
                read_checkpoint(saved)
        file.unlink()
        with pytest.raises(DamagedCheckpoint):
            read_checkpoint(saved)
        file.mkdir()
        with pytest.raises(DamagedCheckpoint):
            read_checkpoint(saved)
        file.rmdir()
    finally:
        file.write_bytes(good)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_a_manifest_of_anything_else_is_refused(tmp_path_factory: pytest.TempPathFactory, content) -> None:
    directory = tmp_path_factory.mktemp("any") / "step-000000010"
    directory.mkdir()
    (directory / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(DamagedCheckpoint):
        read_checkpoint(directory)


def test_a_run_falls_back_to_the_checkpoint_before_and_says_so(tmp_path: Path) -> None:
    finish(tmp_path / "whole")
    path = tmp_path / "damaged"
    finish(path, stop_at=8)
    newest, before = list_checkpoints(path / "checkpoints")
    data = bytearray((newest / "state.safetensors").read_bytes())
    data[-5] ^= 4
    (newest / "state.safetensors").write_bytes(data)
    said = finish(path)
    assert any("damaged checkpoint" in line and "state.safetensors is not what was saved" in line for line in said)
    assert f"resuming at step {int(before.name[5:])}" in said
    assert result(path) == result(tmp_path / "whole")
    assert (path / "checkpoints" / f"damaged-{newest.name}").is_dir()


def test_without_a_good_checkpoint_a_run_does_not_start_again(tmp_path: Path) -> None:
    for harm in ("flip", "remove"):
        path = tmp_path / harm
        finish(path, stop_at=8)
        for checkpoint in list_checkpoints(path / "checkpoints"):
            if harm == "flip":
                (checkpoint / "manifest.json").write_bytes(b"{}")
            else:
                shutil.rmtree(checkpoint)
        metrics = (path / "metrics.jsonl").read_bytes()
        with pytest.raises(InputError, match="no good checkpoint left"):
            finish(path)
        assert (path / "metrics.jsonl").read_bytes() == metrics


@pytest.mark.parametrize("harm", ["gone", "torn", "doubled", "garbled"])
def test_metrics_that_were_harmed_are_mended(tmp_path: Path, harm: str) -> None:
    finish(tmp_path / "whole")
    path = tmp_path / "harmed"
    finish(path, stop_at=8)
    file = path / "metrics.jsonl"
    text = file.read_bytes()
    rng = np.random.default_rng(0)
    harmed = {"torn": text[:-7], "doubled": text + text.splitlines(keepends=True)[-1], "garbled": rng.bytes(len(text))}
    file.unlink() if harm == "gone" else file.write_bytes(harmed[harm])
    finish(path)
    assert result(path) == result(tmp_path / "whole")
    steps = [json.loads(line)["step"] for line in file.read_text().splitlines()]
    assert steps == [0, 4, 8, NUM_STEPS]


def test_a_checkpoint_of_another_format_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint of a newer version is not damaged, and this version does not touch it."""
    monkeypatch.setattr(recombine.storage.checkpoint, "FORMAT", 2)
    finish(tmp_path / "run", stop_at=4)
    monkeypatch.undo()
    before = sorted((tmp_path / "run").rglob("*"))
    with pytest.raises(InputError, match="has format 2; this version reads format 1"):
        finish(tmp_path / "run")
    assert sorted((tmp_path / "run").rglob("*")) == before


def test_a_passing_trouble_of_the_disk_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finish(tmp_path / "run", stop_at=4)
    before = sorted((tmp_path / "run").rglob("*"))

    def fail(*_: object, **__: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="Too many"):
        patch.setattr(recombine.files.os, "open", fail)
        read_checkpoint(max((tmp_path / "run" / "checkpoints").glob("step-*")))
    assert sorted((tmp_path / "run").rglob("*")) == before
