"""The story as one file, in a real browser: it needs no server, tells its steps, and moves while it is dragged."""

import json
import re
from collections.abc import Iterator
from math import pi, sin
from pathlib import Path
from urllib.parse import urlencode

import pytest

from recombine.cli.main import main
from recombine.config.model import EXPLICIT_STEPS
from recombine.story.facts import StoryScores
from recombine.story.pack import demo_story
from recombine.story.static_page import MOST_BYTES
from tests.page.browser import AXE, CHROMIUM, Browser

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, a package of make system-deps")

PLACE = "document.getElementById('story')"
SETTLED = f"{PLACE}.dataset.settled === 'true'"
WAIT = 120.0  # seconds, on a busy machine


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("story") / "story.html"
    assert main(["export", "--page", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


def open_story(
    browser: Browser, page: Path, search: str = "", width: int = 1280, height: int = 720, **state: object
) -> None:
    address = f"{page.resolve().as_uri()}{search}#{urlencode(state)}"
    browser.open(address, width=width, height=height, patience=WAIT)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    browser.wait_for(SETTLED, WAIT)


def numbers(browser: Browser) -> list[float]:
    """The two large numbers."""
    browser.wait_for(SETTLED, WAIT)
    script = f"[...{PLACE}.querySelectorAll('.big')].map((one) => one.textContent.replace('−', '-'))"
    return [float(text) for text in browser.evaluate(script)]


def test_one_file_without_a_server(browser: Browser, page: Path) -> None:
    assert page.stat().st_size <= MOST_BYTES
    open_story(browser, page)
    assert browser.problems == []
    assert browser.requests == [page.resolve().as_uri()]
    if AXE:
        assert browser.serious() == []


def test_the_steps_by_keyboard(browser: Browser, page: Path) -> None:
    """Practised: both right. Never seen: only one has some of the novel part. The true latent, and explicit inference:
    right again."""
    open_story(browser, page)
    seen = [numbers(browser)]
    for step in range(1, 4):
        browser.press("ArrowRight")
        browser.wait_for(f"{PLACE}.dataset.step === '{step}'", WAIT)
        seen.append(numbers(browser))
    assert min(seen[0]) > 0.99
    assert seen[1][0] < 0.2 < 0.6 < seen[1][1] < 0.95, "the novel part"
    assert seen[1][0] == seen[2][0] == seen[3][0], "the transformer has nothing to hand over"
    assert min(pair[1] for pair in seen[2:]) > 0.99
    browser.press("ArrowLeft", times=3)
    browser.wait_for(f"{PLACE}.dataset.step === '0'", WAIT)
    assert numbers(browser) == seen[0]
    assert browser.problems == []


def test_the_strip_is_the_navigation(browser: Browser, page: Path) -> None:
    facts = demo_story().facts
    open_story(browser, page)
    columns = f"[...{PLACE}.querySelectorAll('.column')]"
    assert browser.evaluate(f"{columns}.length") == len(facts.trained) + len(facts.held_out) == 15
    browser.evaluate(f"{columns}[1].click()")
    browser.wait_for(f"{PLACE}.dataset.step === '1'", WAIT)  # never practised, so the second step is about it
    assert facts.held_out[1] in browser.evaluate("location.hash")
    pressed = f"{columns}.map((one) => one.ariaPressed === 'true')"
    assert browser.evaluate(pressed) == [number == 1 for number in range(15)]


def test_the_novel_part(browser: Browser, page: Path) -> None:
    """Over all tasks, the transformer explains little of it, and the hypertransformer most."""
    facts = demo_story().facts
    scores, explicit = facts.scores, facts.explicit["own"][EXPLICIT_STEPS]
    assert scores["transformer"].novel < 0.2 < 0.6 < scores["inferred"].novel < 0.9 < explicit.novel
    open_story(browser, page, step=2, show="novel")
    first, second = numbers(browser)
    assert first < 0.5 < second
    assert "new part" in browser.evaluate(f"{PLACE}.querySelector('.square').textContent")


def test_the_strip_follows_the_plots(browser: Browser, page: Path) -> None:
    """The columns have the scores of what the large numbers show: the same part, from the same latent."""
    facts = demo_story().facts

    def shown(**state: object) -> tuple[list[list[float]], str]:
        open_story(browser, page, **state)
        labels = browser.evaluate(f"[...{PLACE}.querySelectorAll('.column')].map((one) => one.ariaLabel)")
        found = [re.findall(r"[−\d.]+", label.partition("R²")[2].replace("−", "-")) for label in labels]
        caption = browser.evaluate(f"{PLACE}.querySelector('.caption').textContent")
        return [[float(text) for text in numbers] for numbers in found], caption

    def expected(second: StoryScores, novel: bool) -> list[list[float]]:
        both = [(one.novel_masks if novel else one.masks) for one in (facts.scores["transformer"], second)]
        return [[one[mask] for one in both if mask in one] for mask in (*facts.held_out, *facts.trained)]

    captions, worked = [], {"step": 4, "answers": "explicit", "steps": 1, "show": "whole"}
    for second, novel, state in (
        (facts.scores["inferred"], False, {"step": 1}),
        (facts.scores["inferred"], True, {"step": 2, "show": "novel"}),
        (facts.scores["true"], False, {"step": 3, "answers": "true", "show": "whole"}),
        (facts.scores["true"], True, {"step": 3, "answers": "true", "show": "novel"}),
        (facts.explicit["own"][1], False, worked),
        (
            facts.explicit["zero"][1],
            True,
            {"step": 4, "answers": "explicit", "steps": 1, "start": "zero", "show": "novel"},
        ),
    ):
        found, caption = shown(**state)
        captions.append(caption)
        for numbers, scores in zip(found, expected(second, novel), strict=True):
            assert numbers == pytest.approx(scores, abs=0.006)
        marks = f"[...{PLACE}.querySelectorAll('.mark')].filter((one) => one.checkVisibility()).length"
        assert browser.evaluate(marks) == 2 * (len(facts.held_out) if novel else len(found))
    assert len(set(captions)) == len(captions), "the caption says what is shown"
    before = browser.evaluate("location.hash")
    browser.press("k")
    assert browser.evaluate("location.hash") == before.replace("steps=1", "steps=2")


def test_a_link_restores_the_view(browser: Browser, page: Path) -> None:
    open_story(browser, page, step=5, weights="0.2,0,0.5,0.3,0,0", draw=7, length=8, answers="explicit", steps=2)
    assert browser.evaluate(f"{PLACE}.querySelectorAll('.module.on').length") == 3
    before, link = numbers(browser), browser.evaluate("location.hash")
    browser.open(f"{page.resolve().as_uri()}{link}", patience=WAIT)
    assert numbers(browser) == before
    open_story(browser, page, step=99, pair="<b>", weights="1", draw="-1", length="x", answers="?", fresh="1e99")
    assert numbers(browser)[1] > 0.99, "what cannot be is left out"
    assert browser.problems == []


@pytest.mark.parametrize(("width", "height", "search"), [(1280, 720, ""), (1280, 720, "?present"), (390, 844, "")])
def test_everything_is_in_view(browser: Browser, page: Path, width: int, height: int, search: str) -> None:
    for step in range(1, 5):
        open_story(browser, page, search, width, height, step=step)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        if width == 1280:
            assert browser.evaluate("document.documentElement.scrollHeight") <= height, step
    if search:
        texts = (
            "[...document.querySelectorAll('body *')].filter((one) => one.checkVisibility()"
            " && !one.closest('.spoken, title')"
            " && [...one.childNodes].some((child) => child.nodeType === 3 && child.data.trim()))"
        )
        real = "one.getScreenCTM ? Math.hypot(one.getScreenCTM().a, one.getScreenCTM().b) : 1"
        sizes = browser.evaluate(f"{texts}.map((one) => parseFloat(getComputedStyle(one).fontSize) * ({real}))")
        assert min(sizes) >= 19.5


def test_it_moves_while_it_is_dragged(browser: Browser, page: Path) -> None:
    """A real drag of the mix is drawn on the way, not only at its end. `tests/serve/pace.py` measures how often."""
    open_story(browser, page, step=2, show="novel")
    box = json.loads(browser.evaluate(f"JSON.stringify({PLACE}.querySelector('.mix input').getBoundingClientRect())"))
    y, width = box["top"] + box["height"] / 2, box["width"] - 20
    points = [(box["left"] + 10 + width * (0.5 + 0.45 * sin(2 * pi * i / 60)), y) for i in range(120)]
    draws = f"Number({PLACE}.dataset.draws)"
    first, before = browser.evaluate(draws), browser.evaluate("location.hash")
    browser.drag(points)
    assert browser.evaluate(draws) >= first + 10
    assert browser.evaluate(f"{PLACE}.querySelector('.mix input').value") != "0.5"
    assert browser.evaluate("location.hash") == before, "the mix of a pair is not part of a step's link"
