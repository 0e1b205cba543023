"""The tables of the docs that are made from the code itself: rooms, commands, fields of the configuration."""

import ast
import inspect
import re
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import get_args

from recombine.cli.main import Command
from recombine.config.model import HypertransformerConfig, TransformerConfig
from recombine.config.schema import ComputeConfig, Config, MeasureConfig, OptimizerConfig, TrainConfig
from recombine.config.task import TaskConfig
from recombine.support.support import Support
from recombine.terminal.markdown import table

ROOT = Path(__file__).parents[2]
GROUPS = {
    "task": [TaskConfig],
    "model": [TransformerConfig, HypertransformerConfig],
    "optimizer": [OptimizerConfig],
    "measure": [MeasureConfig],
    "compute": [ComputeConfig],
    "train": [TrainConfig],
    "": [Config],
}


def tree() -> str:
    """A line for each room, in the order of imports: the first line of its docstring."""
    lines = ["src/recombine/"]
    for name in _order():
        room = ROOT / "src" / "recombine" / name
        path, shown = (room / "__init__.py", f"{name}/") if room.is_dir() else (room.with_suffix(".py"), f"{name}.py")
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        lines.append(f"  {shown:<18}{docstring.splitlines()[0].removesuffix('.')}")
    return "\n".join(["```", *lines, "```"])


def _order() -> tuple[str, ...]:
    """The rooms in the order of imports, which a test holds."""
    parsed = ast.parse((ROOT / "tests" / "test_rooms.py").read_text(encoding="utf-8"))
    for node in parsed.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ORDER":
            return ast.literal_eval(node.value)
    raise AssertionError("tests/test_rooms.py has no ORDER")


def commands() -> str:
    """Every command, with the first line of its help."""
    rows = []
    for command in get_args(Command):
        kind, named = get_args(command)[:2]
        rows.append((f"`recombine {named.name}`", (inspect.getdoc(kind) or "").splitlines()[0]))
    return table(("command", "does"), rows, left=2)


def configuration() -> str:
    """Every field of a configuration, its default, and the comment beside it in the code."""
    rows = {}
    for group, classes in GROUPS.items():
        for kind in classes:
            for one in fields(kind):
                name = ".".join(filter(None, (group, one.name)))
                if one.name not in GROUPS and name not in rows:
                    rows[name] = (f"`{name}`", _default(one), _comments(kind).get(one.name, ""))
    return table(("field", "default", "meaning"), list(rows.values()), left=3)


def _default(one: Field) -> str:
    if one.default is not MISSING:
        value = one.default
    else:
        assert one.default_factory is not MISSING
        value = one.default_factory()
    value = value.name if isinstance(value, Support) else value
    return "–" if value in (None, ()) else f"`{value}`"


def _comments(kind: type) -> dict[str, str]:
    """The comment at the end of each field's line, in a class and in those that it extends."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__[:-1]):
        found |= dict(re.findall(r"^    (\w+): [^#\n]*  # (.*)$", inspect.getsource(one), re.MULTILINE))
    return found
