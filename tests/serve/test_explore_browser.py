"""The explorer in a real browser, with no errors in the console and no requests to other hosts."""

import json
import re
import shutil
from math import pi, sin
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.page.browser import AXE, CHROMIUM, Browser
from tests.serve.browsing import LOADING, assert_clean, press, put, saved
from tests.serve.server import Address, copy_demo_run, serving

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, a package of make system-deps")


@pytest.mark.parametrize(("width", "scheme"), [pytest.param(1280, "light", marks=pytest.mark.slow), (390, "dark")])
def test_explore(browser: Browser, server: Address, width: int, scheme: str) -> None:
    browser.open(f"{server.url}/#explore", width=width, scheme=scheme, ready="explore", patience=LOADING)
    assert browser.evaluate("document.documentElement.dataset.theme") == scheme
    assert browser.evaluate("document.documentElement.scrollWidth") <= width

    def answered(do: str) -> None:
        before = int(browser.evaluate("document.documentElement.dataset.answers") or 0)
        browser.evaluate(do)
        browser.wait_for(f"Number(document.documentElement.dataset.answers) > {before}", LOADING)

    def summary() -> str:
        return browser.evaluate("document.getElementById('summary').textContent")

    assert "held out" in summary()
    box = "document.getElementById('summary').getBoundingClientRect()"
    seen = f"(({{top, bottom}}) => top >= 0 && bottom <= innerHeight)({box})"
    for part in ("#graph", "#sliders"):
        browser.evaluate(f"document.querySelector('{part}').scrollIntoView()")
        assert browser.evaluate(seen), f"the scores are in view beside {part}"
    assert browser.evaluate("document.querySelectorAll('#graph g[aria-pressed=true]').length") == 2
    answered(press(3))
    answered(press(1))
    assert "trained on" in summary(), "θ₁ and θ₂"
    pressed = "[...document.querySelectorAll('#graph [aria-pressed=true]')].map((one) => one.dataset.module)"
    answered("document.querySelector('#graph .pair').dispatchEvent(new MouseEvent('click'))")
    assert "held out" in summary(), "the line of a pair chooses it"
    assert browser.evaluate(pressed) == ["0", "3"]
    answered(press(1))
    assert "neither trained on nor held out" in summary(), "three modules"
    first = summary()
    answered(put("#length", 2))
    assert summary() != first
    assert browser.evaluate("document.getElementById('length-value').textContent") == "3"
    answered("document.querySelector('input[name=teacher][value=fresh]').click()")
    assert "a fresh teacher" in summary()
    assert "nothing to compare" in browser.evaluate("document.getElementById('latent').textContent")
    answered("document.querySelector('input[name=teacher][value=run]').click()")
    before = summary()
    answered(put("#sliders input", 2.9))
    assert summary() != before, "the prediction moves with the latent"
    assert "latent moved" in summary()
    browser.wait_for("location.hash.includes('latent1=')")
    link = browser.evaluate("location.hash")
    after = summary()
    choice = "document.querySelectorAll('#sliders button')"
    answered(f"{choice}[1].click()")
    assert "true latent" in summary()
    true = summary()
    answered("document.getElementById('redraw').click()")
    assert "true latent" in summary(), "it is there for every task"
    assert summary() != true
    assert browser.evaluate(f"[...{choice}].map((one) => one.ariaPressed)") == ["false", "true"]
    answered(f"{choice}[0].click()")
    assert "latent" not in summary()
    browser.open(f"{server.url}/{link}", width=width, scheme=scheme, ready="explore", patience=LOADING)
    assert summary() == after, "a link restores the view"
    for plot in ("scatter", "slice", "latent", "attention"):
        assert browser.evaluate(f"document.querySelectorAll('#{plot} svg :is(path, rect)').length") > 3, plot
    assert browser.evaluate("document.querySelectorAll('#scatter .point').length") == 2 * 64
    for plot, (columns, rows) in SAVED.items():
        svg, csv = saved(browser, plot)
        assert svg.startswith("<svg"), plot
        assert "var(" not in svg, "outside the page there is no style sheet"
        assert csv.splitlines()[0] == columns, plot
        assert len(csv.splitlines()) == 1 + rows, plot
    if AXE:
        assert browser.serious() == []
    assert_clean(browser, server)


# What a plot's data have: with three context examples, of two models with two layers of four heads each.
SAVED = {
    "scatter": ("query,truth,predicted,model,run", 2 * 64),
    "slice": ("t,y,model", 3 * 33 + 3),
    "latent": ("module,value,model,deviation,run", 3 * 6),
    "attention": ("model,run,layer,head,token,weight", 2 * 2 * 4 * 4),
}


def test_by_keyboard(browser: Browser, server: Address) -> None:
    """With the keyboard only: choose a module, a weight and the number of examples; the focus is kept."""
    browser.open(f"{server.url}/#explore", ready="explore", patience=LOADING)
    here = "document.activeElement"
    summary = "document.getElementById('summary').textContent"

    def go_to(what: str) -> None:
        for _ in range(60):
            browser.press("Tab")
            if browser.evaluate(f"{here}.matches({json.dumps(what)})"):
                return
        raise AssertionError(f"{what} cannot be reached")

    def changes(key: str) -> None:
        before = browser.evaluate(summary)
        browser.press(key)
        browser.wait_for(f"{summary} !== {json.dumps(before)}", LOADING)

    go_to("#graph [data-module='1']")
    for key in ("Enter", " "):
        changes(key)
        assert browser.evaluate(f"{here}.dataset.module") == "1"
    go_to("#weights input")
    go_to("#length")
    changes("ArrowRight")
    assert browser.evaluate("document.getElementById('length').ariaValueText").endswith(" examples")
    browser.wait_for("document.getElementById('announced').textContent.includes('R²')")
    for plot in SAVED:
        words = browser.evaluate(f"document.querySelector('#{plot} .chart').ariaLabel")
        assert any(character.isdecimal() for character in words), f"{plot}, in numbers"
    assert_clean(browser, server)


def with_vector_labels(run: Path) -> None:
    config = run / "config.toml"
    config.write_text(config.read_text().replace("[task]", "[task]\noutput_dim = 2", 1))


def test_explore_before_there_is_anything(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        browser.open(f"{server.url}/#explore", ready="explore", patience=LOADING)
        assert "There is no trained model here" in browser.evaluate("document.getElementById('summary').textContent")
        browser.wait_for("document.getElementById('live').textContent === 'live'")
        copy_demo_run("quick/transformer-connected+-seed0", tmp_path / "vectors")
        with_vector_labels(tmp_path / "vectors")
        browser.wait_for("document.getElementById('summary').textContent.includes('vectors: its labels are')", LOADING)
        copy_demo_run("quick/hypertransformer-connected+-seed0", tmp_path / "first")
        browser.wait_for("document.getElementById('summary').textContent.includes('R²')", LOADING)
        assert browser.evaluate("document.getElementById('run0').value") == "first"
        assert_clean(browser, server)


def test_vector_labels_are_not_offered(browser: Browser, server: Address, place: Path) -> None:
    """A run whose labels are vectors is listed with the reason, and cannot be chosen; elsewhere it has no link."""
    changed = place / "vectors"
    copy_demo_run("quick/transformer-connected+-seed0", changed)
    with_vector_labels(changed)
    try:
        browser.open(f"{server.url}/#explore", ready="explore", patience=LOADING)
        option = "[...document.querySelectorAll('#run0 option')].find((one) => one.value === 'vectors')"
        browser.wait_for(f"{option} !== undefined", LOADING)
        assert browser.evaluate(f"{option}.matches(':disabled')")
        assert "its labels are vectors" in browser.evaluate(f"{option}.parentElement.label")
        browser.open(f"{server.url}/#run&name=vectors", ready="run", patience=LOADING)
        assert browser.evaluate("document.getElementById('run-title').textContent") == "vectors"
        assert browser.evaluate("document.getElementById('run-explore').hidden")
        assert_clean(browser, server)
    finally:
        shutil.rmtree(changed)


def test_a_link_that_asks_for_what_cannot_be(browser: Browser, server: Address) -> None:
    link = urlencode({"run0": "demo/transformer-connected+-seed0", "weights": "0,0,0,0,0,0"})
    browser.open(f"{server.url}/#explore&{link}", ready="explore", patience=LOADING)
    assert "at least one module must be active" in browser.evaluate("document.getElementById('trouble').textContent")
    assert browser.evaluate("document.getElementById('summary').textContent") == "", "nothing is being loaded any more"


def test_a_first_model_of_other_sizes_brings_its_second(browser: Browser) -> None:
    with serving(None, "--demo") as server:
        browser.open(f"{server.url}/#explore", ready="explore", patience=LOADING)
        chosen = "['run0', 'run1'].map((id) => document.getElementById(id).value)"
        for size in ("quick", "paper"):
            browser.evaluate(put("#run0", f"{size}/transformer-connected+-seed0"))
            browser.evaluate("document.getElementById('run0').dispatchEvent(new Event('change'))")
            pair = [f"{size}/{model}-connected+-seed0" for model in ("transformer", "hypertransformer")]
            assert browser.evaluate(chosen) == pair
        assert_clean(browser, server)


def test_masks_of_any_number_of_modules(browser: Browser, server: Address, place: Path) -> None:
    """The support of the hostile run trains on a pair and on five modules at once, and holds out a pair."""
    (name,) = [path.name for path in place.iterdir() if path.name.startswith("evil")]
    link = urlencode({"run0": name, "weights": "0,1,1,1,1,1"})
    browser.open(f"{server.url}/#explore&{link}", ready="explore", patience=LOADING)
    shape = "document.querySelector('#graph polygon')"
    summary = "document.getElementById('summary').textContent"
    assert browser.evaluate(summary).startswith("trained on")
    assert browser.evaluate(f"{shape}.points.numberOfItems") == 5
    assert browser.evaluate(f"{shape}.classList.contains('trained')")
    assert browser.evaluate("document.querySelectorAll('#graph line.trained').length") == 11
    assert browser.evaluate("document.querySelectorAll('#graph line.held').length") == 1
    for module in (1, 3, 4, 5):
        browser.evaluate(press(module))
    browser.evaluate(press(0))
    browser.wait_for(f"{summary}.includes('held out')", LOADING)
    assert browser.evaluate(f"{shape}.classList.contains('held')"), "θ₁ and θ₃"
    assert browser.evaluate("document.getElementById('combination').selectedOptions[0].textContent") == "θ₁ + θ₃"
    assert_clean(browser, server)


def test_explicit_inference_by_slider_and_key(browser: Browser, server: Address) -> None:
    """Scores, predictions and the latent's bars follow a drag of K on the way; keys move it, and a link restores it."""
    browser.open(f"{server.url}/#explore", ready="explore", patience=LOADING)
    summary = "document.getElementById('summary').textContent"
    shown = "['scatter', 'slice', 'latent'].map((id) => document.querySelector(`#${id} .chart`).ariaLabel)"
    drawings = "Number(document.documentElement.dataset.drawings)"
    top = "document.getElementById('scatter').getBoundingClientRect().top"
    as_inferred, before, place = (browser.evaluate(one) for one in (summary, shown, top))
    assert browser.evaluate("document.querySelectorAll('.inference').length") == 1, "the transformer executes no latent"
    browser.press("k")
    browser.wait_for(f"{summary}.includes('K = 1')", LOADING)
    one = browser.evaluate(summary)
    after = browser.evaluate(shown)
    assert all(text != other for text, other in zip(before, after, strict=True))
    first = browser.evaluate(drawings)
    box = "document.querySelector('.inference input').getBoundingClientRect()"
    left, y, width = browser.evaluate(f"(({{left, top, height, width}}) => [left, top + height / 2, width])({box})")
    browser.drag([(left + width * (0.1 + 0.8 * sin(pi * i / 90) ** 2), y) for i in range(90)], pause=0.03)
    browser.wait_for(f"{summary}.includes('K = 1')", LOADING)  # where the drag ended
    assert browser.evaluate(drawings) >= first + 4
    assert browser.evaluate(summary) == one, "the same task, the same steps"
    bars = browser.evaluate("[...document.querySelectorAll('.bars i')].map((bar) => parseFloat(bar.style.height))")
    assert len(bars) == 11
    assert bars[0] < bars[1]
    browser.press("K")
    browser.wait_for(f"{summary}.includes('K = 0')", LOADING)
    scores = [float(text) for text in re.findall(r"R² ([\d.]+)", browser.evaluate(summary))]
    assert scores == [float(text) for text in re.findall(r"R² ([\d.]+)", as_inferred)]
    browser.evaluate("document.querySelector('.inference [data-start=zero]').click()")
    values = "[...document.querySelectorAll('#sliders .value')].map((one) => Number(one.textContent))"
    browser.wait_for(f"{values}.every((value) => value === 0)", LOADING)
    browser.wait_for("location.hash.includes('latent1=zero-0')")
    browser.press("k", times=3)
    browser.wait_for(f"{summary}.includes('K = 3')", LOADING)
    browser.wait_for("location.hash.includes('latent1=zero-3')")
    tops, link, here = [browser.evaluate(top)], browser.evaluate("location.hash"), browser.evaluate(summary)
    browser.evaluate("document.querySelectorAll('#sliders button')[1].click()")
    browser.wait_for(f"{summary}.includes('true latent')", LOADING)
    assert [*tops, browser.evaluate(top)] == [place, place], "no plot jumps when a badge changes"
    browser.open(f"{server.url}/{link}", ready="explore", patience=LOADING)
    assert browser.evaluate(summary) == here
    assert_clean(browser, server)
