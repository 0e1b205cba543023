"""Imports the module that the command names, from the current directory or from wherever Python finds it.

No other file in the current directory shadows an installed module. The named module can import its siblings, because
the current directory is searched after everything else: a file `scipy.py` there is never mistaken for SciPy. (Adding
the directory at the end of `sys.path` would not be enough: a file there takes precedence over an installed package
without `__init__.py`, such as `google`.)
"""

import re
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module, invalidate_caches, metadata
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType


class ForeignName(Exception):
    """A file in the current directory has the name of a module that must not be replaced. The message says which."""


@dataclass(frozen=True)
class LastPlace(MetaPathFinder):
    """Finds modules that exist nowhere else in a directory. Names of the standard library are skipped: some of them
    exist only on other systems, so that a file here could take their place."""

    directory: str

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        if path is not None or fullname in sys.stdlib_module_names:
            return None
        return PathFinder.find_spec(fullname, [self.directory])


def import_named(name: str) -> ModuleType:
    """Import `package.module` from the current directory, or else from wherever Python finds it."""
    top, here = name.partition(".")[0], str(Path.cwd())
    invalidate_caches()
    spec = PathFinder.find_spec(top, [here])
    if (siblings := LastPlace(here)) not in sys.meta_path:
        sys.meta_path.append(siblings)
    # A directory without __init__.py has no loader: installed modules take precedence over it.
    if spec is not None and spec.loader is not None:
        _load(spec)
    return import_module(name)


def _load(spec: ModuleSpec) -> None:
    """Load a file of the current directory. It must not have the name of a module that Recombine needs."""
    loaded = sys.modules.get(spec.name)
    if loaded is not None and _origin(loaded.__spec__) == _origin(spec):
        return
    if loaded is not None or spec.name in sys.stdlib_module_names or _is_needed(spec.name):
        where = _origin(loaded.__spec__) if loaded else None
        other = f"another module in use ({where})" if where else "a module that Recombine needs"
        raise ForeignName(f"{spec.name} of the current directory has the name of {other}; rename it")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        assert spec.loader is not None
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(spec.name, None)
        raise


def _origin(spec: ModuleSpec | None) -> Path | None:
    return Path(spec.origin).resolve() if spec is not None and spec.origin else None


def _is_needed(name: str) -> bool:
    """Whether a module of this name is installed, and Recombine depends on it, directly or indirectly."""
    installed = PathFinder.find_spec(name, [place for place in sys.path if place != str(Path.cwd())])
    if installed is None:
        return False
    providers = metadata.packages_distributions().get(name, [])
    needed, waiting = {"recombine"}, deque(["recombine"])
    while waiting:
        try:
            requirements = metadata.requires(waiting.popleft()) or []
        except metadata.PackageNotFoundError:
            continue
        found = {_normal(re.split(r"[^\w.-]", requirement, maxsplit=1)[0]) for requirement in requirements}
        waiting += found - needed
        needed |= found
    return not needed.isdisjoint(map(_normal, providers))


def _normal(distribution: str) -> str:
    """The normalised name of a distribution: vl_convert.python and VL-Convert-Python are the same."""
    return re.sub(r"[-_.]+", "-", distribution).lower()
