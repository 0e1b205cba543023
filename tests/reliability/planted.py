"""Files with the names of modules, and a pretended SLURM."""

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
    """The names of Python's own modules, of all installed distributions, and of all optional dependencies."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    listed = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    ours = {re.split(r"[^\w-]", requirement)[0].replace("-", "_") for requirement in listed}
    installed = {name for name in packages_distributions() if name.isidentifier()}
    return ours | installed | set(sys.stdlib_module_names) | {"recombine", PLUGIN}


def names_for_module() -> set[str]:
    """Like `every_name`, without the modules that `python -m recombine` imports before any of our code runs."""
    code = "import runpy, sys; print(*sys.modules)"
    before = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    return every_name() - {"recombine", *before.stdout.split()}


def installed_names() -> set[str]:
    """The names that Python finds outside this directory."""
    return {name for name in every_name() - {"recombine"} if PathFinder.find_spec(name) is not None}


def plant(directory: Path, names: Iterable[str], marks: Path) -> None:
    """Plant a module of each name, and a plugin that JAX would load from anywhere on Python's path."""
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
    """The planted modules that were imported."""
    return sorted(path.name for path in marks.iterdir())


def forget_marks(marks: Path) -> None:
    """Remove the marks, so that each command is tested separately."""
    for path in marks.iterdir():
        path.unlink()


SBATCH = """#!/bin/sh
[ "$1" = --test-only ] && exit 0
cp "$1" "$0.$$"
last=$(sed -n 's/^#SBATCH --array=.*0-\\([0-9]*\\)%.*/\\1/p' "$1")
export SLURM_NTASKS=1 SLURM_JOB_NUM_NODES=1 SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0
for task in $(seq 0 "${last:-0}"); do
    number="$$"
    if [ -n "$last" ]; then
        number="$$_$task"
        export SLURM_ARRAY_JOB_ID="$$" SLURM_ARRAY_TASK_ID="$task"
    fi
    touch "$(dirname "$0")/running/$number"
    (SLURM_JOB_ID="$$" bash "$0.$$"; rm "$(dirname "$0")/running/$number") > /dev/null 2>&1 &
done
echo "Submitted batch job $$"
"""
# After the options that submitit gives it comes the command.
SRUN = """#!/bin/sh
shift 5
exec "$@"
"""
SQUEUE = """#!/bin/sh
for number in $(ls "$(dirname "$0")/running"); do echo "$number RUNNING"; done
"""


def pretend_slurm(directory: Path) -> None:
    """Put the programs into a directory, which goes first on the PATH."""
    (directory / "running").mkdir(parents=True)
    for name, text in {"sbatch": SBATCH, "srun": SRUN, "squeue": SQUEUE, "scancel": "#!/bin/sh\n"}.items():
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)
