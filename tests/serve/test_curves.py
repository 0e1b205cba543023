"""Curves, verdicts and the story, as the server answers them."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from recombine.record.codec import encode, plain
from recombine.serve import live_verdicts as module
from recombine.serve.busy import Busyness
from recombine.serve.library import Library
from recombine.serve.live_verdicts import ShownPart, ShownVerdict, Verdicts, VerdictsAnswer
from recombine.storage.source import DirectorySource
from recombine.storage.thinned_metrics import read_curve
from recombine.story.pack import demo_story
from tests.page.browser import CHROMIUM, Browser
from tests.reliability.small_run import finish, small_config, without_copies
from tests.serve.browsing import LOADING, assert_clean, click
from tests.serve.server import Address, row, serving


def steps(directory: Path, most: int = 300) -> list[int]:
    return [point.step for point in read_curve(DirectorySource(directory), most)]


@pytest.mark.parametrize("rows", [0, 1, 2, 63, 64, 65, 500])
def test_a_curve_is_thinned(tmp_path: Path, rows: int) -> None:
    """Every 2ᵏ-th row, at most 64 of them, and the last."""
    (tmp_path / "config.toml").touch()
    (tmp_path / "metrics.jsonl").write_text("".join(row(step) for step in range(rows)))
    every = next(2**k for k in range(20) if 2**k * 64 >= rows)
    expected = sorted({*range(0, rows, every), *range(rows - 1, rows)} - {-1})
    assert steps(tmp_path, 64) == expected
    losses = [point.loss for point in read_curve(DirectorySource(tmp_path), 64)]
    assert losses == [float(f"{1.0 / (step + 1):.6g}") for step in expected]


def test_a_curve_of_another_file(tmp_path: Path) -> None:
    (tmp_path / "config.toml").touch()
    path = tmp_path / "metrics.jsonl"
    for written in ([0, 1, 2], [5, 6, 7], [5, 6], [5, 6, 7], []):
        path.write_text("".join(row(step) for step in written))
        assert steps(tmp_path) == written
    path.write_text(row(1) + row(2)[:-5])  # the last line is being written
    assert steps(tmp_path) == [1]
    path.unlink()
    assert steps(tmp_path) == []


def test_only_rows_that_a_checkpoint_has_are_shown(tmp_path: Path) -> None:
    finish(tmp_path / "run")
    before = steps(tmp_path / "run")
    metrics = tmp_path / "run" / "metrics.jsonl"
    text = metrics.read_text()
    for edited in (text + row(99), text.replace('"r2": ', '"r2": 1'), text[: len(text) // 2], ""):
        metrics.write_text(edited)
        assert steps(tmp_path / "run") == before


def test_long_metrics(tmp_path: Path) -> None:
    finish(tmp_path / "run")
    without_copies(tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(row(step) for step in range(5_000)))
    library = Library(tmp_path)
    library.refresh()
    assert library.table()[0].measured == 4_999
    for most in (300, 20, 300):
        found = [point.step for point in library.curve("run", most)]
        assert most / 2 <= len(found) <= most + 1
        assert (found[0], found[-1]) == (0, 4_999)


def test_a_run_that_was_replaced_has_another_curve(tmp_path: Path) -> None:
    """The library's curve follows the run's name, not the first file that had it."""
    finish(tmp_path / "run")
    library = Library(tmp_path)
    library.refresh()
    before = library.curve("run")
    shutil.move(tmp_path / "run", tmp_path / "other")
    shutil.copytree(tmp_path / "other", tmp_path / "run")
    without_copies(tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").write_text(row(3) + row(4))
    library.refresh()
    assert [point.step for point in library.curve("run")] == [3, 4]
    assert library.curve("other") == before


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
    assert set(answer["verdicts"][0]) == {"number", "claim", "state", "note", "parts", "lean"}
    assert {"state", "text", "first"} <= set(answer["verdicts"][0]["parts"][0]) <= set(ShownPart.__struct_fields__)
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


needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, a package of make system-deps")
STORY = "document.getElementById('story')"


@needs_browser
def test_the_demo_opens_on_the_story(browser: Browser) -> None:
    with serving(None, "--demo") as server:
        browser.open(server.url, width=1280, height=720, ready="story", patience=LOADING)
        browser.wait_for(f"{STORY}.dataset.settled === 'true'", LOADING)
        assert browser.evaluate("document.documentElement.scrollHeight") <= 720
        browser.press("ArrowRight", times=2)
        browser.wait_for(f"{STORY}.dataset.step === '2' && location.hash.includes('answers=true')", LOADING)
        browser.wait_for(f"Number({STORY}.querySelectorAll('.big')[1].textContent) > 0.99", LOADING)
        link = browser.evaluate("location.hash")
        click(browser, "#to-runs")
        browser.wait_for("document.documentElement.dataset.ready === 'runs'", LOADING)
        browser.press("ArrowRight")
        click(browser, "#to-story")
        browser.wait_for("document.documentElement.dataset.ready === 'story'", LOADING)
        assert browser.evaluate("location.hash") == link, "the keys belong to the view that is shown"
        assert_clean(browser, server)
        assert server.get("/api/story").body == encode(demo_story()).encode()


def test_other_directories_have_no_story(server: Address) -> None:
    assert server.get("/api/story").status == 404
    assert server.get("/api/runs").json()["story"] is False
