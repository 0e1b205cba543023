"""Digests of source code: which code made a number, comments and formatting aside.

The digest of a module covers the module and every module that it imports from the same directories, followed to the
end. It is read off the files, and nothing is imported. A stored number is used again only if its digest is that of the
code at hand.
"""

import ast
import hashlib
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
UNKNOWN = ""  # the digest of what was made before digests were kept
LENGTH = 16  # hexadecimal digits of a digest


@cache
def package_digest(*modules: str) -> str:
    """Of modules of this package, such as `recombine.train.loop`, and all of the package that they import."""
    return _digest(modules, (PACKAGE.parent,), only=PACKAGE.name)


@cache
def model_digest(custom: str) -> str:
    """Of the module of a class, `package.module:Class`, and all that it imports from the user's own directories."""
    module = custom.partition(":")[0]
    if module.partition(".")[0] == PACKAGE.name:  # a class that comes with Recombine
        return package_digest(module)
    top = sys.modules.get(module.partition(".")[0])
    found = getattr(top, "__file__", None) or next(iter(getattr(top, "__path__", [])), None)
    home = () if found is None else (_parent_of_top(Path(found).resolve(), module),)
    return _digest([module], (*home, *_user_directories()), without=PACKAGE.name)


def package_commit() -> str:
    """The commit that this package is of, if it is in a git checkout; `+` behind it where files were changed since."""
    commit = _git("log", "-1", "--format=%H", "--", ".")
    return f"{commit}+" if commit and _git("status", "--porcelain", "--", ".") else commit


def _git(*arguments: str) -> str:
    """What git says of this package's files; empty where there is no git, or the files are not in a checkout."""
    try:
        command = ["git", "-C", str(PACKAGE), *arguments]
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""


def _parent_of_top(found: Path, module: str) -> Path:
    """The directory that the top-level module or package of `module` stands in."""
    return found.parent if found.stem == module.partition(".")[0] else found.parent.parent


def _user_directories() -> tuple[Path, ...]:
    """Where Python looks for modules, but for its own library and installed packages."""
    installed = {Path(sysconfig.get_paths()[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    directories = dict.fromkeys(Path(entry or ".").resolve() for entry in sys.path)
    return tuple(
        path
        for path in directories
        if path.is_dir() and path != PACKAGE.parent and not any(path.is_relative_to(other) for other in installed)
    )


def _digest(modules: Iterable[str], directories: Sequence[Path], only: str = "", without: str = "") -> str:
    """Of all files that the modules lead to: their names below their directories, and what they say."""
    waiting, found = list(modules), dict[str, str]()
    while waiting:
        name = waiting.pop()
        top = name.partition(".")[0]
        if name in found or (only and top != only) or top == without:
            continue
        path = _find(name, directories)
        if path is None:
            continue  # of the standard library or an installed package, or no module at all
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
    """The packages that a module is in: importing the module runs them."""
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


@cache
def _scan(path: Path, name: str) -> tuple[str, tuple[str, ...]]:
    """The digest of a file, and the modules that it imports. What cannot be parsed is taken by its bytes."""
    data, imported = path.read_bytes(), ()
    if path.suffix == ".py":
        with suppress(SyntaxError, ValueError, RecursionError):
            tree = ast.parse(data)
            data = "".join(_meaning(tree)).encode()
            imported = tuple(_imported(tree, name if path.name == "__init__.py" else name.rpartition(".")[0]))
    return hashlib.sha256(data).hexdigest(), imported


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    """The modules that a file of a package imports, wherever in the file, and the names that may be modules."""
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
    """A syntax tree as text: no comments, no docstrings, no line numbers, the same in every version of Python."""
    match value:
        case ast.Raise():  # no number depends on the words of an error
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
    """A string that stands alone in a body: a docstring, or the description of a field."""
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)
