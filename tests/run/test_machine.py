"""The machine and the home directory that a run finds."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from recombine.run.machine import prepare
from recombine.run.process import cache_directory, settle_home


def test_compiled_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flag is added once to the user's own flags, and a level that the user has set is kept."""
    jax.devices()  # so that nothing else is prepared
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    for _ in range(2):
        prepare(compile_quickly=True)
        assert os.environ["XLA_FLAGS"] == "--xla_cpu_enable_fast_math=false --xla_backend_optimization_level=0"
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=2")
    prepare(compile_quickly=True)
    assert os.environ["XLA_FLAGS"] == "--xla_backend_optimization_level=2"


def test_the_cache_works_where_jax_has_started_before(tmp_path: Path) -> None:
    """As in a notebook, whose first line imports JAX."""
    code = (
        "import jax\n"
        "jax.numpy.ones(3) + 1\n"
        "from recombine.run.machine import prepare\n"
        "prepare()\n"
        "from recombine.config.preset import preset_config\n"
        "from recombine.task.teacher import config_teacher\n"
        "config_teacher(preset_config('smoke', 'transformer'))\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    environment |= {"XDG_CACHE_HOME": str(tmp_path), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=300)
    assert list(tmp_path.glob("recombine/compiled-*/jit_init_teacher*"))


HOMELESS = """
import os, pwd, sys
os.environ.pop("HOME", None)
def unknown(number): raise KeyError(number)
pwd.getpwuid = unknown
from recombine.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "arguments",
    [["task", "show", "--figure", "a.svg"], ["task", "sample", "--out", "a.npz", "--episodes", "3", "--length", "4"]],
    ids=lambda words: " ".join(words[:3]),
)
def test_commands(arguments: list[str], tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", HOMELESS, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    assert len(list(tmp_path.iterdir())) == 1


def test_nothing_is_kept_where_there_is_no_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unknown(_: object) -> None:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", unknown)
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    settle_home()
    assert cache_directory() is None
    with pytest.raises(NotADirectoryError):
        Path.home().joinpath("anything").mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "recombine"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME")
    settle_home()
    assert os.environ["HOME"] == str(tmp_path)
    assert cache_directory() == tmp_path / ".cache" / "recombine"
