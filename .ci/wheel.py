"""Builds the wheel, installs it into a fresh environment, and tries every command there, outside the checkout.

The environment has what the wheel itself asks for and the extra `serve`, nothing of the developers' tools. The other
versions of Python that the wheel names and this machine has get an environment too, and the shorter commands.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
QUIET = ["--quiet", "--disable-pip-version-check"]
QUICKLY = os.environ | {"XLA_FLAGS": "--xla_backend_optimization_level=0"}  # what is tried is mostly compiled
COMMANDS = """
--version
task show --support disconnected --figure graph.svg
task design --size 7 --json
task sample --episodes 20 --length 8 --input-dim 4 --hidden-dim 4 --out episodes.npz
construct --trials 10 --modules 2 --input-dim 2 --hidden-dim 2
train --preset smoke --model hypertransformer --out run --set optimizer.num_steps=2 measure.snapshots=1
train --out run --json
report run --csv
export run --weights --out shared.zip
reproduce --help
sweep results --help
bench --help
serve --help
eval --help
"""
BRIEFLY = ("--version", "train", "report", "export")  # the commands that other versions of Python try
IN_PYTHON = """
import time
start = time.perf_counter()
import recombine as rc
print(f"import recombine: {time.perf_counter() - start:.3f} s")
assert "site-packages" in rc.__file__, rc.__file__
start = time.perf_counter()
run = rc.load("demo/paper/hypertransformer-connected+-seed0")
run.model
print(f"loading a demo model, with the imports: {time.perf_counter() - start:.1f} s")
print(rc.runs("demo"), repr(rc.load("shared.zip/run")))
import recombine.serve.app
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        pip([*QUIET, "wheel", "--no-deps", "--wheel-dir", str(place), str(ROOT)], sys.executable)
        (wheel,) = place.glob("recombine-*.whl")
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
        check_readme(metadata := read_metadata(wheel))
        versions = re.findall(r"^Classifier: Programming Language :: Python :: (3\.\d+)$", metadata, re.MULTILINE)
        commands = COMMANDS.strip().splitlines()
        try_wheel(wheel, place / "env", sys.executable, commands)
        print("every command works outside the checkout")
        for version in versions:
            if version == "{}.{}".format(*sys.version_info):
                continue
            if (python := find_python(version)) is None:
                print(f"Python {version}: not tried, because this machine does not have it")
                continue
            try_wheel(wheel, place / version, python, [line for line in commands if line.startswith(BRIEFLY)])
            print(f"Python {version}: works")


def try_wheel(wheel: Path, env: Path, python: str, commands: list[str]) -> None:
    """Install the wheel into a fresh environment of an interpreter, and run commands there."""
    started = time.monotonic()
    subprocess.run([python, "-m", "venv", str(env)], check=True)
    python = str(env / "bin" / "python")
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    pip([*QUIET, "install", "--no-compile", *constraints, f"{wheel}[serve]"], python)
    size = sum(path.stat().st_size for path in env.rglob("*") if path.is_file())
    print(f"installed: {size / 1e6:.0f} MB in {time.monotonic() - started:.0f} s")
    (work := env / "work").mkdir()
    for line in commands:
        run([str(env / "bin" / "recombine"), *line.split()], work)
    run([python, "-W", "error::DeprecationWarning", "-c", IN_PYTHON], work, show=True)


def find_python(version: str) -> str | None:
    """An interpreter of this version: on the PATH, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for found in (shutil.which(f"python{version}"), *sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))):
        # pyenv's command on the PATH is there even if it is switched off
        if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return str(found)
    return None


def read_metadata(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return archive.read(name).decode()


def check_readme(text: str) -> None:
    """An index of packages shows the README alone: no picture and no link may need the repository."""
    assert "## What was found" in text
    lost = [
        link
        for link in re.findall(r"\]\(([^)]+)\)|<img src=\"([^\"]+)", text)
        if not "".join(link).startswith(("https://", "#"))
    ]
    assert not lost, lost


def pip(arguments: list[str], python: str) -> None:
    subprocess.run([python, "-m", "pip", *arguments], check=True)


def run(command: list[str], where: Path, show: bool = False) -> None:
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=300, check=False, env=QUICKLY)
    if done.returncode:
        sys.exit(f"{' '.join(command)} in a fresh environment: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    if show:
        print(done.stdout, end="")


if __name__ == "__main__":
    main()
