"""Digests of source code: they identify the code that made a number, ignoring comments and formatting.

The digest of a module covers the module and, recursively, every module that it imports from the same directories. It
is computed from the files; nothing is imported. A stored number is reused only if its digest equals that of the
current code.
"""

import ast
import hashlib
import inspect
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from textwrap import dedent

PACKAGE = Path(__file__).resolve().parent
UNKNOWN = ""  # the digest of results that were stored before digests existed
LENGTH = 16  # hexadecimal digits of a digest


@cache
def package_digest(*modules: str) -> str:
    """The digest of modules of this package, such as `recombine.train.loop`, and of the package's code they import."""
    return _digest(modules, (PACKAGE.parent,), only=PACKAGE.name)


@cache
def model_digest(custom: str) -> str:
    """The digest of the module of `package.module:Class`, and of what it imports from the user's own directories."""
    module = custom.partition(":")[0]
    if module.partition(".")[0] == PACKAGE.name:  # a class that comes with Recombine
        return package_digest(module)
    if module == "__main__":  # a class of a notebook or of a script
        return _class_digest(getattr(sys.modules[module], custom.partition(":")[2], None))
    top = sys.modules.get(module.partition(".")[0])
    found = getattr(top, "__file__", None) or next(iter(getattr(top, "__path__", [])), None)
    home = () if found is None else (_parent_of_top(Path(found).resolve(), module),)
    return _digest([module], (*home, *_user_directories()), without=PACKAGE.name)


def _class_digest(found: object) -> str:
    """The digest of one class, from the cell or the file that defines it; UNKNOWN where Python lacks its text."""
    try:
        text = dedent(inspect.getsource(found))  # pyright: ignore[reportArgumentType]
        return hashlib.sha256("".join(_meaning(ast.parse(text))).encode()).hexdigest()[:LENGTH]
    except (OSError, TypeError, SyntaxError, ValueError):
        return UNKNOWN


def package_commit() -> str:
    """The git commit of this package, followed by `+` if files have changed since; empty outside a checkout."""
    commit = _git("log", "-1", "--format=%H", "--", ".")
    return f"{commit}+" if commit and _git("status", "--porcelain", "--", ".") else commit


def _git(*arguments: str) -> str:
    """The output of a git command on this package's files; empty without git, or outside a checkout."""
    try:
        command = ["git", "-C", str(PACKAGE), *arguments]
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""


def _parent_of_top(found: Path, module: str) -> Path:
    """The directory that contains the top-level module or package of `module`."""
    return found.parent if found.stem == module.partition(".")[0] else found.parent.parent


def _user_directories() -> tuple[Path, ...]:
    """The directories on `sys.path`, without Python's standard library and installed packages."""
    installed = {Path(sysconfig.get_paths()[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    directories = dict.fromkeys(Path(entry or ".").resolve() for entry in sys.path)
    return tuple(
        path
        for path in directories
        if path.is_dir() and path != PACKAGE.parent and not any(path.is_relative_to(other) for other in installed)
    )


def _digest(modules: Iterable[str], directories: Sequence[Path], only: str = "", without: str = "") -> str:
    """The digest of the modules and of all modules that they import: of their names and their code."""
    waiting, found = list(modules), dict[str, str]()
    while waiting:
        name = waiting.pop()
        top = name.partition(".")[0]
        if name in found or (only and top != only) or top == without:
            continue
        path = _find(name, directories)
        if path is None:
            continue  # in the standard library or an installed package, or no module at all
        found[name], imported = _scan(path, name)
        waiting += [*_packages(name), *imported]
    text = "\n".join(f"{name} {digest}" for name, digest in sorted(found.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def _find(name: str, directories: Sequence[Path]) -> Path | None:
    parts = name.split(".")
    for directory in directories:
        stem = directory.joinpath(*parts)
        for path in (stem / "__init__.py", stem.with_name(f"{stem.name}.py"), *stem.parent.glob(f"{stem.name}.*.so")):
            if path.is_file():
                return path
    return None


def _packages(name: str) -> Iterator[str]:
    """The packages that contain a module. Importing the module runs them too."""
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


@cache
def _scan(path: Path, name: str) -> tuple[str, tuple[str, ...]]:
    """The digest of a file, and the modules that it imports. A file that cannot be parsed is digested as bytes."""
    data, imported = path.read_bytes(), ()
    if path.suffix == ".py":
        with suppress(SyntaxError, ValueError, RecursionError):
            tree = ast.parse(data)
            data = "".join(_meaning(tree)).encode()
            imported = tuple(_imported(tree, name if path.name == "__init__.py" else name.rpartition(".")[0]))
    return hashlib.sha256(data).hexdigest(), imported


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    """The modules that a file imports anywhere, and the names in `from … import` that may be modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            above = parts[: len(parts) - node.level + 1] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _meaning(value: object) -> Iterator[str]:
    """A syntax tree as text, without comments, docstrings and line numbers; the same in every version of Python."""
    match value:
        case ast.Raise():  # no number depends on an error message
            yield "(Raise)"
        case ast.AST():
            yield f"({type(value).__name__}"
            for field, entry in ast.iter_fields(value):
                kept = [line for line in entry if not _is_text(line)] if isinstance(entry, list) else entry
                if kept is None or kept == [] or field in ("kind", "type_comment"):
                    continue
                yield f" {field}="
                yield from _meaning(kept)
            yield ")"
        case list():
            for entry in value:
                yield from _meaning(entry)
                yield ","
        case _:
            yield repr(value)


def _is_text(line: object) -> bool:
    """Whether a statement is only a string: a docstring, or the description of a field."""
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)
