"""The README is correct and fits one page: its Python runs, its commands exist, its links lead somewhere."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_the_python_is_that_of_its_page() -> None:
    """docs/python.md has the same block, and a test that runs it."""
    (code,) = blocks("python")
    assert f"```python\n{code}```" in (ROOT / "docs" / "python.md").read_text(encoding="utf-8")


def test_the_commands() -> None:
    commands = [shlex.split(line, comments=True) for block in blocks("sh") for line in block.splitlines()]
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert commands == [["make", "reproduce"], ["make", "test"]]
    assert {"reproduce", "test", "demo"} <= set(targets)


def test_it_is_one_page() -> None:
    assert len(README.split()) <= 800


def test_the_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if not link.startswith("https://")]
    assert len(links) > 4
    for link in links:
        assert (ROOT / link).exists(), link
