"""Verdicts while runs go on, whatever stands in their files."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from recombine.serve import verdicts as module
from recombine.serve.library import Library
from recombine.serve.verdicts import Verdicts
from tests.reliability.small_run import finish, small_config


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "one"
    finish(path, small_config())
    return path


def verdicts(root: Path) -> dict:
    library = Library(root)
    library.refresh()
    (study,) = library.studies()
    return asyncio.run(Verdicts(library).of(study))


def test_a_run_s_own_directory_is_a_study(run: Path) -> None:
    assert len(verdicts(run)["verdicts"]) == len(verdicts(run.parent)["verdicts"]) == 7


@pytest.mark.parametrize("hostile", [{"ood": {"r2": "high"}}, {"ood": [1]}, {"probe": {"ood": "x"}}, {"in_dist": 3}])
def test_rows_that_no_run_writes(run: Path, tmp_path: Path, hostile: dict) -> None:
    shutil.copytree(run, tmp_path / "bad")
    lines = (run / "metrics.jsonl").read_text().splitlines()
    lines[-1] = json.dumps(json.loads(lines[-1]) | hostile)
    (tmp_path / "bad" / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert {"verdicts", "error"} & set(verdicts(tmp_path)), "an answer, not an exception"


def test_runs_that_cannot_be_read_are_left_out(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "bad")
    (tmp_path / "bad" / "metrics.jsonl").write_text("[]\n")
    assert verdicts(tmp_path) == {"error": "no run here can be read", "left_out": ["bad"]}
    shutil.copytree(run, tmp_path / "good")
    answer = verdicts(tmp_path)
    assert answer["left_out"] == ["bad"]
    assert answer["verdicts"] == verdicts(run)["verdicts"]


@pytest.mark.parametrize("busy", [False, True])
def test_many_studies(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: bool) -> None:
    """Each is judged when it is first asked about; on a busy machine all of them together have an allowance."""
    for study in "abcdefgh":
        shutil.copytree(run, tmp_path / study / "one")
    library = Library(tmp_path)
    library.refresh()
    monkeypatch.setattr(module.Load, "is_busy", lambda self: busy)
    monkeypatch.setattr(module, "_timed", lambda runs, root: ({"verdicts": [runs[0].name]}, 0.5))

    async def scenario() -> None:
        judged = Verdicts(library)
        answers = {study: await judged.of(study) for study in "abcdefgh"}
        waiting = [study for study, answer in answers.items() if "again" in answer]
        assert len(waiting) == (3 if busy else 0)
        assert all(answers[study] == {"verdicts": [f"{study}/one"]} for study in "abcdefgh" if study not in waiting)
        assert all(answers[study]["verdicts"] == [] and answers[study]["again"] > 1 for study in waiting)
        assert await judged.of("a") == {"verdicts": ["a/one"]}, "from memory"
        with (tmp_path / "a" / "one" / "metrics.jsonl").open("a") as file:
            file.write("{}\n")
        library.refresh()
        assert (await judged.of("a"))["again"] >= 1, "not all the time"

    asyncio.run(scenario())
