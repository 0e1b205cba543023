"""Files beside runs are data: whatever their names, no command imports them, except for the class that it names."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import tomli_w

from recombine.config.preset import preset_config
from recombine.config.toml import override
from recombine.errors import InputError
from recombine.jobs.paper_runs import BOTTLENECK
from recombine.model.custom import import_model
from recombine.user_class import ForeignName, import_named
from tests.reliability.planted import (
    MODULE,
    SCRIPT,
    every_name,
    forget_marks,
    imported,
    installed_names,
    names_for_module,
    plant,
    pretend_slurm,
)
from tests.reliability.small_run import SMALL, finish
from tests.serve.server import serving

SOURCE = Path(__file__).parents[2] / "src" / "recombine"
RUN = "runs/bottleneck"
SHARED = {name: table for name, table in SMALL.items() if name != "model"}


class Place:
    """A current directory as unpacked from an untrusted archive: runs, and files with the names of modules."""

    def __init__(self, here: Path, marks: Path, program: Sequence[str]):
        self.here, self.marks, self.program = here, marks, program

    def run(self, *arguments: str, **environment: str) -> str:
        """Run a command there, and check that no planted module was imported."""
        forget_marks(self.marks)
        process = subprocess.run(
            [*self.program, *arguments],
            cwd=self.here,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert imported(self.marks) == []
        assert process.returncode == 0, process.stderr
        return process.stdout


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the shipped class, which a command need not name."""
    path = tmp_path_factory.mktemp("trained") / "bottleneck"
    options = {**SMALL["model"], "latent_dim": 2, "hidden_dim": 2}
    finish(path, override(preset_config("smoke", BOTTLENECK), {**SHARED, "model": {"options": options}}))
    return path


def make_place(program: Sequence[str], names: set[str], run: Path, outside: Path) -> Place:
    here, marks = outside / "here", outside / "marks"
    shutil.copytree(run, here / RUN)
    for directory in (outside, here, here / "runs", here / RUN):
        plant(directory, names, marks)
    (here / "small.toml").write_text(tomli_w.dumps(SHARED))
    (here / "grid.toml").write_text(tomli_w.dumps({**SMALL, "grid": {"optimizer.learning_rate": [0.001]}}))
    return Place(here, marks, program)


@pytest.fixture(scope="module")
def script(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """For `recombine`."""
    return make_place(SCRIPT, every_name(), run, tmp_path_factory.mktemp("script"))


@pytest.fixture(scope="module")
def module(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """For `python -m recombine`."""
    return make_place(MODULE, names_for_module(), run, tmp_path_factory.mktemp("module"))


COMMANDS = {
    "task show": "task show --figure support.svg",
    "task sample": "task sample --episodes 2 --out episodes.npz",
    "construct": "construct --trials 2",
    "train": "train --preset smoke --config small.toml --set optimizer.num_steps=2 --out out/train",
    "eval": f"eval {RUN}",
    "export": f"export {RUN} --weights --out out/exported.zip",
    "report": "report runs --out out/report",
    "sweep": "sweep --grid grid.toml --preset smoke --seeds 1 --workers 1 --out out/sweep",
    "reproduce": "reproduce --preset smoke --config small.toml --workers 1 --out out/reproduce",
    "bench": "bench --preset smoke --model transformer --lengths 8 --contenders fast torch_eager --steps 1 --repeats 1"
    " --threads 1 --cold-start",
}
QUICK = {("eval", "module")}  # the workers of a sweep: test_workers_find_it_where_the_command_was_started


@pytest.mark.parametrize(
    ("command", "program"),
    [
        pytest.param(command, program, marks=() if (command, program) in QUICK else pytest.mark.slow)
        for command in COMMANDS
        for program in ("script", "module")
    ],
)
def test_no_command_imports_what_lies_there(
    command: str, program: str, attacked: Callable, request: pytest.FixtureRequest
) -> None:
    attacked("a command in a directory with a file named like every module")
    place: Place = request.getfixturevalue(program)
    place.run(*COMMANDS[command].split())


@pytest.mark.parametrize("program", ["script", pytest.param("module", marks=pytest.mark.slow)])
def test_nor_does_the_server_or_its_explorer(program: str, attacked: Callable, request: pytest.FixtureRequest) -> None:
    attacked("a command in a directory with a file named like every module")
    place: Place = request.getfixturevalue(program)
    forget_marks(place.marks)
    with serving(Path(), program=place.program, cwd=place.here) as server:
        pages = [server.get(path) for path in ("/", "/api/runs", f"/api/models?run={RUN}")]
    assert imported(place.marks) == []
    assert [page.status for page in pages] == [200, 200, 200]
    assert pages[-1].json()


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["slurm", "ray"])
def test_nor_do_tasks_of_a_cluster(executor: str, script: Place, tmp_path: Path, attacked: Callable) -> None:
    attacked("a command in a directory with a file named like every module")
    pytest.importorskip({"slurm": "submitit", "ray": "ray"}[executor])
    command = ["sweep", "--grid", "grid.toml", "--preset", "smoke", "--seeds", "1", "--out", f"out/{executor}"]
    script.run(*command, "--executor", executor, PATH=slurm_path(tmp_path))


def slurm_path(place: Path) -> str:
    pretend_slurm(place / "bin")
    return f"{place / 'bin'}:{os.environ['PATH']}"


def test_python_is_started_in_one_way() -> None:
    """All code that starts a Python process takes its command from `python_process.py`."""
    words = ("sys.executable", "multiprocessing", "ProcessPoolExecutor", "os.exec", "os.spawn", "os.fork")
    found = [path for path in SOURCE.rglob("*.py") if any(word in path.read_text(encoding="utf-8") for word in words)]
    assert found == [SOURCE / "run" / "process.py"]


NET = """
import equinox as eqx
import jax
import scipy.special
from beside import start  # a module of the user's own, of which this one needs something
from package.inside import Output, Trace


class Net(eqx.Module):
    scale: jax.Array

    def __init__(self, config, *, key):
        import lazily  # when the class is built, and no module is being imported

        self.scale = jax.numpy.full((), start * scipy.special.expit(lazily.zero), jax.numpy.float32)

    def __call__(self, context_x, context_y, query_x):
        return Output(self.scale * context_y.mean(), Trace())
"""


@pytest.fixture
def own(tmp_path: Path) -> Place:
    """A current directory with a custom class, its siblings, and files with the names of installed modules."""
    here = tmp_path / "own"
    plant(here, installed_names(), tmp_path / "marks")
    (here / "package").mkdir()
    (here / "my_net.py").write_text(NET)
    (here / "beside.py").write_text("start = 0.5\n")
    (here / "lazily.py").write_text("zero = 0.0\n")
    (here / "package" / "__init__.py").write_text("")
    (here / "package" / "inside.py").write_text("from recombine.model.interface import Output, Trace\n")
    (here / "small.toml").write_text(tomli_w.dumps(SHARED))
    (here / "grid.toml").write_text(tomli_w.dumps({**SHARED, "grid": {"model.kind": ["my_net:Net"]}}))
    return Place(here, tmp_path / "marks", SCRIPT)


@pytest.mark.slow
def test_a_named_class_and_its_siblings_run_and_nothing_else_does(own: Place) -> None:
    own.run("train", "--model", "my_net:Net", "--preset", "smoke", "--config", "small.toml", "--out", "run")
    assert (own.here / "run" / "metrics.jsonl").is_file()


@pytest.mark.parametrize(
    "executor", ["local", *(pytest.param(name, marks=pytest.mark.slow) for name in ("slurm", "ray"))]
)
def test_workers_find_it_where_the_command_was_started(executor: str, own: Place, tmp_path: Path) -> None:
    pytest.importorskip({"slurm": "submitit", "ray": "ray", "local": "recombine"}[executor])
    command = ["sweep", "--grid", "grid.toml", "--model", "my_net:Net", "--preset", "smoke", "--seeds", "1"]
    own.run(*command, "--workers", "1", "--out", "out", "--executor", executor, PATH=slurm_path(tmp_path))
    (metrics,) = (own.here / "out").glob("*/metrics.jsonl")
    assert metrics.stat().st_size > 0


@pytest.mark.parametrize("name", ["equinox", "scipy", "narwhals", "google", "colorsys"])
def test_a_named_module_that_takes_a_name_we_need_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is imported already, a dependency of ours, a dependency's, one without __init__.py, or Python's."""
    plant(tmp_path / "here", [name], tmp_path / "marks")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    if name != "equinox":
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(InputError, match=rf"^model = '{name}:Net': .*rename"):
        import_model(f"{name}:Net")
    assert imported(tmp_path / "marks") == []


def test_a_shipped_class_leaves_the_path_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = [*sys.path], [*sys.meta_path]
    import_model(BOTTLENECK)
    assert (sys.path, sys.meta_path) == before


def test_of_two_modules_of_one_name_the_one_in_the_current_directory_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds if Recombine does not need the other. A module imported earlier from elsewhere is not used for it."""
    for place in ("installed", "here", "there"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "of_two.py").write_text(f"class Net:\n    place = {place!r}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "installed"), *sys.path])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.chdir(tmp_path / "here")
    try:
        assert import_named("of_two").Net.place == "here"
        assert import_named("of_two").Net.place == "here"
        monkeypatch.chdir(tmp_path / "there")
        with pytest.raises(ForeignName, match="of_two"):
            import_named("of_two")
    finally:
        sys.modules.pop("of_two", None)


def test_a_sibling_does_not_replace_a_package_without_init(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anywhere on Python's path, a file takes precedence over such a package, even over one that comes earlier."""
    for file in ("installed/spaced_out/inner.py", "here/spaced_out.py"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    (tmp_path / "here" / "needs_spaced_out.py").write_text("import spaced_out.inner\nfound = spaced_out.inner.__file__")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "installed"), *sys.path])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.chdir(tmp_path / "here")
    assert import_named("needs_spaced_out").found == str(tmp_path / "installed" / "spaced_out" / "inner.py")
