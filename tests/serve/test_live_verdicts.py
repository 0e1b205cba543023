"""Verdicts on runs that are still training, whatever their files contain."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from recombine.record.codec import plain
from recombine.serve import live_verdicts as module
from recombine.serve.busy import Busyness
from recombine.serve.library import Library
from recombine.serve.live_verdicts import ShownVerdict, Verdicts, VerdictsAnswer
from tests.reliability.small_run import finish, small_config, without_copies


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "one"
    finish(path, small_config())
    return path


def verdicts(root: Path) -> VerdictsAnswer:
    library = Library(root)
    library.refresh()
    (study,) = library.studies()
    return asyncio.run(Verdicts(library).answer(study))


def test_a_run_s_own_directory_is_a_study(run: Path) -> None:
    assert len(verdicts(run).verdicts) == len(verdicts(run.parent).verdicts) == 7


@pytest.mark.parametrize("hostile", [{"ood": {"r2": "high"}}, {"ood": [1]}, {"probe": {"ood": "x"}}, {"in_dist": 3}])
def test_rows_that_no_run_writes(run: Path, tmp_path: Path, hostile: dict) -> None:
    shutil.copytree(run, tmp_path / "bad")
    without_copies(tmp_path / "bad")
    lines = (run / "metrics.jsonl").read_text().splitlines()
    lines[-1] = json.dumps(json.loads(lines[-1]) | hostile)
    (tmp_path / "bad" / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert verdicts(tmp_path) == VerdictsAnswer(verdicts=(), left_out=("bad",), error="no run here can be read")


def test_runs_that_cannot_be_read_are_left_out(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "bad")
    without_copies(tmp_path / "bad")
    (tmp_path / "bad" / "metrics.jsonl").write_text("[]\n")
    assert verdicts(tmp_path) == VerdictsAnswer(verdicts=(), left_out=("bad",), error="no run here can be read")
    shutil.copytree(run, tmp_path / "good")
    answer = verdicts(tmp_path)
    assert answer.left_out == ("bad",)
    assert answer.verdicts == verdicts(run).verdicts


def test_numbers_that_no_run_writes(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of the right types can still make judging fail; then the answer says so."""

    def fail(study: object) -> object:
        raise ZeroDivisionError("no spread")

    monkeypatch.setattr("recombine.study.verdict.judge", fail)
    assert verdicts(run.parent) == VerdictsAnswer(verdicts=(), error="ZeroDivisionError: no spread")


def test_the_keys_that_the_page_reads(run: Path) -> None:
    """The answer has the keys that `static/claims.js` reads, also if there are no verdicts."""
    answer = plain(verdicts(run))
    assert set(answer) == {"verdicts"}
    assert set(answer["verdicts"][0]) == {"number", "claim", "state", "note", "parts"}
    assert set(answer["verdicts"][0]["parts"][0]) == {"state", "text"}
    waiting = VerdictsAnswer(verdicts=(), left_out=("bad",), again=1.5, error="why")
    assert plain(waiting) == {"verdicts": [], "left_out": ["bad"], "again": 1.5, "error": "why"}


@pytest.mark.parametrize("busy", [False, True])
def test_many_studies(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: bool) -> None:
    """Each study is judged on the first request; on a busy machine they share one budget."""
    for study in "abcdefgh":
        shutil.copytree(run, tmp_path / study / "one")
    library = Library(tmp_path)
    library.refresh()

    def judged(name: str) -> VerdictsAnswer:
        return VerdictsAnswer(verdicts=(ShownVerdict(1, name, "holds", "", ()),))

    monkeypatch.setattr(Busyness, "is_busy", lambda self: busy)
    monkeypatch.setattr(module, "_judge_and_time", lambda runs, root: (judged(runs[0].name), 0.5))

    async def scenario() -> None:
        verdicts = Verdicts(library)
        answers = {study: await verdicts.answer(study) for study in "abcdefgh"}
        waiting = [study for study, answer in answers.items() if answer.again is not None]
        assert len(waiting) == (3 if busy else 0)
        assert all(answers[study] == judged(f"{study}/one") for study in "abcdefgh" if study not in waiting)
        assert all(answers[study].verdicts == () and answers[study].again > 1 for study in waiting)
        assert await verdicts.answer("a") == judged("a/one"), "from memory"
        with (tmp_path / "a" / "one" / "metrics.jsonl").open("a") as file:
            file.write("{}\n")
        library.refresh()
        assert (await verdicts.answer("a")).again >= 1, "not all the time"

    asyncio.run(scenario())
