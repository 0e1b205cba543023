"""The rooms: imports go one way, JAX is imported late, and nothing is a pile."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "recombine"

# What each room may import, besides itself.
BASE = {"", "errors", "paper", "checks", "files", "numerics", "stream"}
MAY_IMPORT = {
    "errors": set(),
    "paper": set(),
    "checks": {"errors"},
    "files": {"errors"},
    "numerics": set(),
    "stream": {"checks", "numerics"},
    "task": BASE,
    "config": BASE | {"task"},
    "config_file": BASE | {"task", "config"},
    "preset": BASE | {"config", "config_file"},
    "model": BASE | {"config"},
    "train": BASE | {"task", "model", "config"},
    "measure": BASE | {"task", "model", "config"},
    "experiment": BASE | {"task", "model", "config", "config_file", "preset", "train", "measure"},
    "report": BASE | {"task", "config", "config_file", "measure", "experiment"},
    "bench": BASE | {"task", "config", "config_file", "preset", "model", "train", "experiment"},
    "serve": BASE | {"task", "config", "config_file", "model", "train", "measure", "experiment", "report"},
    "cli": BASE
    | {
        "task",
        "config",
        "config_file",
        "preset",
        "model",
        "train",
        "measure",
        "experiment",
        "report",
        "bench",
        "serve",
    },
    "__main__": {"cli"},
    "__init__": set(),
}


def room(module: str) -> str:
    """'recombine.support.mask' → 'task'; 'recombine' itself → ''."""
    return [*module.split("."), ""][1]


def imports(path: Path) -> set[str]:
    """The rooms that a file imports, wherever in the file it does."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {room(alias.name) for alias in node.names if alias.name.split(".")[0] == "recombine"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "recombine":
            names = {f"recombine.{alias.name}" for alias in node.names} if node.module == "recombine" else {node.module}
            found |= {room(name) for name in names if name and room(name) != "__version__"}
    return found


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert imports(path) <= MAY_IMPORT[own] | {own}


def test_no_piles() -> None:
    assert not [path for path in FILES if path.stem in {"utils", "util", "common", "helpers", "misc"}]


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["task", "sample", "--help"], ["task", "smaple"], ["task", "show"], ["task", "sample"]],
    ids=" ".join,
)
def test_jax_is_not_imported_for_what_does_not_need_it(arguments: list[str]) -> None:
    code = (
        "import sys, recombine.cli.main\n"
        "try: recombine.cli.main.main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print(sorted({'jax', 'equinox', 'altair', 'scipy'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"
