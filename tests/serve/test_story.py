"""The story is the first view of the demo, and only of the demo. The explorer draws while it is dragged."""

import pytest

from recombine.record.codec import encode
from recombine.story.pack import demo_story
from tests.page.browser import CHROMIUM, Browser
from tests.serve.browsing import LOADING, assert_clean, click
from tests.serve.server import Address, serving

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, a package of make system-deps")
STORY = "document.getElementById('story')"


@needs_browser
def test_the_demo_opens_on_the_story(browser: Browser) -> None:
    with serving(None, "--demo") as server:
        browser.open(server.url, width=1280, height=720, ready="story", patience=LOADING)
        browser.wait_for(f"{STORY}.dataset.settled === 'true'", LOADING)
        assert "vega" not in " ".join(browser.requests), "the first picture does not wait for it"
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


@needs_browser
def test_every_answer_is_drawn(browser: Browser, server: Address) -> None:
    """While a slider is dragged, questions come faster than answers. Each answer is drawn, and the last one last."""
    browser.open(f"{server.url}/#explore", ready="explore", patience=LOADING)
    script = """new Promise(async (done) => {
        const root = document.documentElement.dataset, before = Number(root.drawings);
        const range = document.querySelector('#weights input');
        let asked = 0;
        const fetched = window.fetch;
        window.fetch = (...given) => { asked += String(given[0]).includes('/api/explore'); return fetched(...given); };
        for (let i = 0; i < 40; i += 1) {
            range.value = 0.1 + 0.02 * i;
            range.dispatchEvent(new Event('input'));
            await new Promise((wait) => setTimeout(wait, 25));
        }
        while (Number(root.drawings) - before < asked) await new Promise((wait) => setTimeout(wait, 25));
        window.fetch = fetched;
        done([asked, Number(root.drawings) - before]);
    })"""
    asked, drawn = browser.evaluate(script)
    assert asked == drawn >= 2
