import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from recombine.errors import InputError, describe
from recombine.files import append, check_output, make_directories, read_file, replace_file, replacing, sync_directory
from tests.reliability.faults import FailingDisk, disk


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("a.txt", "must end in .npz"),
        ("missing/a.npz", "no directory"),
        ("directory.npz", "is a directory"),
        ("x" * 300 + ".npz", "not a usable file name"),
        ("nul\0.npz", "not a usable file name"),
        ("file.npz/a.npz", "no directory"),
    ],
)
def test_refuses_what_cannot_be_written(tmp_path: Path, name: str, complaint: str) -> None:
    (tmp_path / "directory.npz").mkdir()
    (tmp_path / "file.npz").write_text("")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=complaint):
        check_output("out", tmp_path / name, (".npz",))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["a.npz", "ünï 模.npz", "x" * 251 + ".npz"])
def test_accepts_what_can(tmp_path: Path, name: str) -> None:
    check_output("out", tmp_path / name, (".npz",))
    with replacing("out", tmp_path / name) as temporary:
        temporary.write_text("whole")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_text("old")
    with pytest.raises(RuntimeError), replacing("out", path) as temporary:
        temporary.write_text("half of the n")
        raise RuntimeError
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]
    assert path.read_text() == "old"


def test_success_replaces_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_text("old")
    with replacing("out", path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new"


def test_what_was_appended_or_replaced_survives_a_loss_of_power(tmp_path: Path) -> None:
    for garble in (False, True):
        path = tmp_path / f"{garble}"
        with disk(FailingDisk()) as shim:
            make_directories(path / "a" / "b")
            append(path / "rows", b"one\n")
            append(path / "rows", b"two\n")
            replace_file(path / "status", b"old")
            replace_file(path / "status", b"new")
        shim.lose_power(garble)
        assert (path / "a" / "b").is_dir()
        assert (path / "rows").read_bytes() == b"one\ntwo\n"
        assert (path / "status").read_bytes() == b"new"


@pytest.mark.parametrize("operation", ["write", "fsync", "close"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_an_error_of_the_disk_names_the_file(
    tmp_path: Path, operation: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system knows a handle only, and says nothing of its name."""

    def fail(handle: int, *_: object) -> None:
        if operation == "close":
            os.close(handle)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("recombine.files.os", SimpleNamespace(**{**vars(os), operation: fail}))
    path = tmp_path / "rows"

    def replaced() -> None:
        with replacing("out", path) as temporary:
            temporary.write_text("new")
            if operation == "write":
                fail(-1)

    for write in (lambda: append(path, b"one"), lambda: replace_file(path, b"new"), replaced):
        if operation == "close" and write is replaced:
            continue  # the temporary file is made before the name is known to be good
        with pytest.raises(OSError, match=os.strerror(number)) as failed:
            write()
        assert describe(failed.value) == f"{path}: {os.strerror(number)}"
    if operation != "write":
        with pytest.raises(OSError, match=os.strerror(number)) as failed:
            sync_directory(tmp_path)
        assert str(tmp_path) in describe(failed.value)


def test_a_file_that_grows_is_read_up_to_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of /proc have no size, and others may be written to while they are read."""
    path = tmp_path / "rows"
    path.write_bytes(b"x")
    monkeypatch.setattr("recombine.files.os", SimpleNamespace(**{**vars(os), "read": lambda *_: b"x" * 1000}))
    with pytest.raises(OSError, match="rows"):
        read_file(path, most=5000)
