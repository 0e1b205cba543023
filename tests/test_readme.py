"""The README is correct: its Python runs, its commands parse, its tree and its links match the files."""

import ast
import re
import shlex
import tomllib
from pathlib import Path

from recombine.cli.main import parse
from recombine.jobs.paper_runs import paper_runs
from tests.test_rooms import ORDER

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_the_tree() -> None:
    """One line per room, in the order of imports, with the first line of its docstring."""
    printed = next(block for block in blocks("") if block.startswith("src/recombine/")).splitlines()
    expected = []
    for name in ORDER:
        room = ROOT / "src" / "recombine" / name
        path, shown = (room / "__init__.py", f"{name}/") if room.is_dir() else (room.with_suffix(".py"), f"{name}.py")
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        expected.append(f"  {shown}".ljust(20) + docstring.splitlines()[0].removesuffix("."))
    assert [line for line in printed if line.startswith("  ")] == expected
    assert max(map(len, printed)) <= 120


def test_the_python_is_that_of_its_page() -> None:
    """docs/python.md has the same block, and a test that runs it."""
    (code,) = blocks("python")
    assert f"```python\n{code}```" in (ROOT / "docs" / "python.md").read_text(encoding="utf-8")


def test_the_commands_parse() -> None:
    commands = [shlex.split(line, comments=True) for block in blocks("sh") for line in block.splitlines()]
    ours = [words[1:] for words in commands if words[0] == "recombine"]
    assert len(ours) >= 6
    for arguments in ours:
        parse(arguments)
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    made = [words[1] for words in commands if words[0] == "make"]
    assert made == ["reproduce", "test"]
    assert set(made) <= set(targets)


def test_the_configuration_is_valid() -> None:
    (text,) = blocks("toml")
    configs = {entry.config.model.label: entry.config for entry in paper_runs("quick", tomllib.loads(text), [0])}
    assert all(config.task.episode_length == 64 for config in configs.values())
    assert configs["hypertransformer"].model.latent_dim == 8  # pyright: ignore[reportAttributeAccessIssue]


def test_the_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if not link.startswith("https://")]
    assert len(links) > 4
    for link in links:
        assert (ROOT / link).exists(), link
