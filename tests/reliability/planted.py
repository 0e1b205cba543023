"""A directory full of files that have the names of modules, and that leave a mark when they are imported."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions
from pathlib import Path

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
SCRIPT = (str(Path(sys.executable).with_name("recombine")),)
MODULE = (sys.executable, "-m", "recombine")
PLUGIN = "planted_plugin"


def every_name() -> set[str]:
    """Python's modules, those of every distribution that is installed here, and those of all that we can use."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    listed = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    ours = {re.split(r"[^\w-]", requirement)[0].replace("-", "_") for requirement in listed}
    installed = {name for name in packages_distributions() if name.isidentifier()}
    return ours | installed | set(sys.stdlib_module_names) | {"recombine", PLUGIN}


def names_for_module() -> set[str]:
    """As `every_name`, without what `python -m recombine` has Python look for before any code of ours can run."""
    code = "import runpy, sys; print(*sys.modules)"
    before = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    return every_name() - {"recombine", *before.stdout.split()}


def installed_names() -> set[str]:
    """The names that Python finds elsewhere."""
    return {name for name in every_name() - {"recombine"} if PathFinder.find_spec(name) is not None}


def plant(directory: Path, names: Iterable[str], marks: Path) -> None:
    """A module of each name; and a plugin, which JAX would load from wherever Python looks for modules."""
    directory.mkdir(parents=True, exist_ok=True)
    marks.mkdir(exist_ok=True)
    for name in names:
        (directory / f"{name}.py").write_text(f"open({str(marks / f'{directory.name}-{name}')!r}, 'a').close()\n")
    if PLUGIN in names:
        (directory / "jax_plugins").mkdir()
        mark = str(marks / f"{directory.name}-jax_plugins")
        (directory / "jax_plugins" / "plugin.py").write_text(f"open({mark!r}, 'a').close()\n")
        (directory / "planted-1.0.dist-info").mkdir()
        (directory / "planted-1.0.dist-info" / "METADATA").write_text("Name: planted\nVersion: 1.0\n")
        (directory / "planted-1.0.dist-info" / "entry_points.txt").write_text(f"[jax_plugins]\nplanted = {PLUGIN}\n")


def imported(marks: Path) -> list[str]:
    """What was imported of what was planted."""
    return sorted(path.name for path in marks.iterdir())


def forget_marks(marks: Path) -> None:
    """So that what one command imports is not held against the next."""
    for path in marks.iterdir():
        path.unlink()
