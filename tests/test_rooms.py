"""The rooms: imports go one way, JAX is imported late, and no directory is a grab bag."""

import ast
import subprocess
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "recombine"

# Data goes down this list: a room imports the rooms above it, and never one below.
ORDER = (
    "errors",
    "paper",
    "claims",
    "checks",
    "html_table",
    "no_links",
    "files",
    "fork",
    "code_digest",
    "user_class",
    "numerics",
    "stream",
    "support",
    "config",
    "record",
    "task",
    "model",
    "train",
    "measure",
    "exam",
    "storage",
    "run",
    "jobs",
    "study",
    "bench",
    "figure",
    "page",
    "story",
    "terminal",
    "notebook",
    "serve",
    "cli",
    "__main__",
)
APART = {("model", "task"), ("measure", "train")}  # neighbours that must not import each other
MOST_FILES = 14


def room(module: str) -> str:
    """The room of a module: 'support' for 'recombine.support.masks', '' for 'recombine' itself."""
    return [*module.split("."), ""][1]


def imports(path: Path) -> set[str]:
    """The rooms that a file imports, anywhere in the file."""
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
    here = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if here == "__init__":
        assert imports(path) == set()
        return
    above = {*ORDER[: ORDER.index(here) + 1], ""} - {there for one, there in APART if one == here}
    assert imports(path) <= above


def test_every_room_is_in_the_order() -> None:
    found = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in FILES} - {"__init__"}
    assert found == set(ORDER)


def test_no_piles() -> None:
    assert not [path for path in FILES if path.stem in {"utils", "util", "common", "helpers", "misc"}]
    sizes = Counter(path.parent.relative_to(SOURCE).as_posix() for path in FILES)
    assert {room: size for room, size in sizes.items() if size > MOST_FILES} == {}


def test_no_two_names_differ_by_a_letter() -> None:
    names = sorted({path.stem for path in FILES} | {path.parent.name for path in FILES})
    close = [(a, b) for a, b in combinations(names, 2) if differ_by_a_letter(a, b)]
    assert close == []


def differ_by_a_letter(a: str, b: str) -> bool:
    """Whether two names differ by one letter that is changed, added or left out."""
    if len(a) == len(b):
        return sum(x != y for x, y in zip(a, b, strict=True)) == 1
    short, long = sorted((a, b), key=len)
    return len(long) == len(short) + 1 and any(long[:i] + long[i + 1 :] == short for i in range(len(long)))


def test_results_are_typed() -> None:
    """Untyped tables remain only at the edges: TOML, JSON from elsewhere, data of charts."""
    lines = [line for path in FILES for line in path.read_text(encoding="utf-8").splitlines()]
    assert sum("dict[str, Any]" in line for line in lines) <= 20


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
