"""Digests of source code change with the behaviour of the code, and with nothing else."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from recombine.code_digest import PACKAGE, model_digest, package_digest

MODEL = """
import json
import os.path
from helper import scale
from parts import norm


class Model:
    \"\"\"A model.\"\"\"

    def __call__(self, x):
        return scale * norm.mean(x)
"""

FILES = {
    "mine.py": MODEL,
    "helper.py": "scale = 2\n",
    "parts/__init__.py": "",
    "parts/norm.py": "from . import deep\n\n\ndef mean(x):\n    return deep.total(x) / len(x)\n",
    "parts/deep.py": "def total(x):\n    return sum(x)\n",
    "parts/unused.py": "x = 1\n",
}


def digest(directory: Path, changes: dict[str, str]) -> str:
    """The digest of the model in a directory of FILES, some of them changed, computed by a process started there."""
    directory.mkdir(exist_ok=True)
    for name, text in (FILES | changes).items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    code = "import mine; from recombine.code_digest import model_digest; print(model_digest('mine:Model'))"
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True)
    return found.stdout.strip()


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> str:
    return digest(tmp_path_factory.mktemp("sources") / "unchanged", {})


@pytest.mark.parametrize(
    "change",
    [
        {"mine.py": MODEL.replace("scale *", "scale +")},
        {"helper.py": "scale = 3\n"},
        {"parts/norm.py": "from . import deep\n\n\ndef mean(x):\n    return deep.total(x)\n"},
        {"parts/deep.py": "def total(x):\n    return max(x)\n"},
        {"parts/__init__.py": "import parts.unused\n"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_change_of_what_the_code_does_changes_the_digest(
    tmp_path: Path, unchanged: str, change: dict[str, str]
) -> None:
    assert digest(tmp_path / "changed", change) != unchanged


@pytest.mark.parametrize(
    "change",
    [
        {"mine.py": MODEL.replace('"""A model."""', '"""Another text."""')},
        {"mine.py": MODEL.replace("return scale", "# why\n        return  scale")},
        {"parts/unused.py": "x = 2\n"},
        {"other.py": "x = 2\n"},
    ],
    ids=["docstring", "comment and spaces", "a file that is not imported", "a new file"],
)
def test_no_other_change_does(tmp_path: Path, unchanged: str, change: dict[str, str]) -> None:
    assert digest(tmp_path / "changed", change) == unchanged


def test_a_package_is_followed_from_room_to_room() -> None:
    """The references' scores depend on the teacher, and not on the models."""
    references, training = package_digest("recombine.measure.reference.score"), package_digest("recombine.train.loop")
    assert len({references, training, package_digest("recombine.task.teacher")}) == 3
    assert model_digest("recombine.model.bottleneck:Bottleneck") == package_digest("recombine.model.bottleneck")


def test_the_code_of_the_teacher_is_part_of_what_the_references_depend_on(tmp_path: Path) -> None:
    """Tested on a copy of the package in which one file at a time is changed."""
    shutil.copytree(PACKAGE, tmp_path / "recombine", ignore=shutil.ignore_patterns("__pycache__"))
    code = (
        "from recombine.code_digest import package_digest; print(package_digest('recombine.measure.reference.score'))"
    )

    def found() -> str:
        command = [sys.executable, "-c", code]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    assert found() == package_digest("recombine.measure.reference.score")
    for name, same in (("task/teacher.py", False), ("measure/ridge.py", False), ("page/html.py", True)):
        path = tmp_path / "recombine" / name
        text = path.read_text(encoding="utf-8")
        path.write_text(f"{text}\nADDED = 1\n", encoding="utf-8")
        assert (found() == package_digest("recombine.measure.reference.score")) == same, name
        path.write_text(text, encoding="utf-8")
