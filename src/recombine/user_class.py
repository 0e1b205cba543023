"""Imports the class that a command names, from the current directory or wherever Python finds it.

No other file in the current directory shadows an installed module. The named module can import its siblings, because
the current directory is searched after everything else: a file `scipy.py` there is never mistaken for SciPy. (Adding
the directory at the end of `sys.path` would not be enough: a file there takes precedence over an installed package
without `__init__.py`, such as `google`.)
"""

import inspect
import re
import sys
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module, invalidate_caches, metadata
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from recombine.errors import InputError

Framework = Literal["equinox", "torch", "flax"]


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


def import_class(field: str, kind: str, *arguments: Any, installed: bool = False) -> Callable[..., Any]:
    """Import `package.module:Class`, which must take the arguments. Any error is reported in one line."""
    module_name, _, class_name = kind.partition(":")
    try:
        module = import_module(module_name) if installed else import_named(module_name)
        found = getattr(module, class_name)
    except ForeignName as error:
        raise InputError(field, kind, str(error)) from error
    except (Exception, SystemExit) as error:  # any error in the user's module is reported to the user
        hint = "; without .py" if module_name.endswith(".py") else ""
        raise InputError(field, kind, f"cannot be imported ({short_error(error)}){hint}") from error
    check_arguments(field, kind, found, *arguments)
    return found


def check_arguments(field: str, kind: str, found: Any, *arguments: Any) -> None:
    """Refuse all but a class that takes the arguments and its framework's source of random numbers."""
    if not callable(found):
        raise InputError(field, kind, "is not a class")
    framework = class_framework(found)
    random = {"torch": {}, "flax": {"rngs": None}}.get(framework, {"key": None})
    try:
        inspect.signature(found).bind(*arguments, **random)
    except TypeError as error:
        given = "config" if field == "model" else "task"
        expected = f"Class({', '.join([given, *(f'{name}={name}' for name in random)])})"
        raise InputError(field, kind, f"cannot be built by {expected}: {error}") from error
    except ValueError:  # some classes written in C have no signature
        pass


def class_framework(found: Any) -> Framework:
    """The framework of a class, found by the names of its base classes: no framework is imported."""
    if isinstance(found, type):
        names = {f"{base.__module__}:{base.__qualname__}" for base in found.__mro__}
        if "torch.nn.modules.module:Module" in names:
            return "torch"
        if "flax.nnx.module:Module" in names:
            return "flax"
    return "equinox"


def short_error(error: BaseException) -> str:
    """The type of an error, its first line (JAX's messages fill a page), and the user's line that caused it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not any(part in f.filename for part in ("site-packages", "recombine", "<frozen"))]
    where = f", {Path(own[-1].filename).name} line {own[-1].lineno}" if own else ""
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}{where}"


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
