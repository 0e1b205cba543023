"""The report page in a real browser: it renders, makes no requests, has no errors, and its controls work."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recombine.figure.chart import tables
from recombine.figure.contents import all_panels
from recombine.study.collect import Study
from recombine.study.series import with_drawable_names
from tests.page.browser import AXE, CHROMIUM, Browser, page
from tests.study.studies import custom_study, half_study, hostile_study, whole_study

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, which is not here")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as found:
        yield found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pages")
    for name, make in STUDIES.items():
        page(make(), place / f"{name}.html")
    return place


STUDIES = {
    "whole": whole_study,
    "half": half_study,
    "hostile": hostile_study,
    "own": custom_study,
    "empty": lambda: Study(()),
}


@needs_browser
@pytest.mark.parametrize("name", STUDIES)
def test_it_renders_alone(browser: Browser, place: Path, name: str) -> None:
    browser.open(place / f"{name}.html")
    plots = "[...document.querySelectorAll('.plot')]"
    drawn = browser.evaluate(f"{plots}.map((plot) => [plot.dataset.panel, plot.querySelectorAll('svg.marks').length])")
    assert dict(drawn) == dict.fromkeys(dict(drawn), 1)
    expected = {panel.name for panel in all_panels(STUDIES[name]()).values()} | {"explore"}
    assert set(dict(drawn)) == (expected if name != "empty" else {"explore"})
    empty = f"{plots}.filter((plot) => !plot.querySelector('.mark-line path, .mark-symbol path, .mark-text text'))"
    assert browser.evaluate(f"{empty}.map((plot) => plot.dataset.panel)") == []
    assert browser.problems == []
    assert browser.requests == [(place / f"{name}.html").resolve().as_uri()]
    assert browser.evaluate("document.title") == "Can an in-context learner recombine what it knows?"


@needs_browser
def test_the_watcher_sees_problems(browser: Browser, tmp_path: Path) -> None:
    """The test above would notice a page that logs an error, and a page that requests an image."""
    ready = "document.documentElement.dataset.ready = 'yes'"
    bad = tmp_path / "bad.html"
    bad.write_text(
        f"<img src='http://127.0.0.1:9/x.png'><script>console.error('oh'); {ready}</script>", encoding="utf-8"
    )
    browser.open(bad)
    assert "oh" in browser.problems
    assert "http://127.0.0.1:9/x.png" in browser.requests


def close(value: Any) -> Any:
    return pytest.approx(value, rel=1e-5, abs=1e-5) if isinstance(value, float) else value


@needs_browser
@pytest.mark.parametrize("name", ["whole", "half", "own", "hostile"])
def test_the_page_and_the_files_draw_the_same_numbers(browser: Browser, place: Path, name: str) -> None:
    study = with_drawable_names(STUDIES[name]())
    support = "connected+" if name != "hostile" else study.runs[0].support
    browser.open(place / f"{name}.html")
    for panel in all_panels(study).values():
        expected = tables(study, panel, lambda run, panel=panel: not panel.by_support or run.support == support)
        shown = browser.evaluate(f"window.recombine.tables({panel.name!r})")
        for table in shown.keys() - {f"{panel.name}_note"}:
            assert len(shown[table]) == len(expected[table])
            for theirs, ours in zip(shown[table], expected[table], strict=True):
                assert theirs == {key: close(value) for key, value in ours.items()}


def pooled_by_hand(
    study: Study, model: str, chosen: list[str], split: str = "ood", support: str = "connected+"
) -> float:
    values = []
    for run in study.runs:
        if (run.model, run.support) == (model, support):
            masks = run.rows[-1].split(split).masks
            n, mse, spread = np.array(
                [[getattr(masks[m], key) for key in ("episodes", "mse", "spread")] for m in chosen]
            ).T
            values.append(1 - (n @ mse) / (n @ spread))
    return float(np.mean(values))


def shown_pooled(browser: Browser) -> dict[str, float]:
    rows = browser.evaluate(
        "[...document.querySelectorAll('#pooled tr')].map((r) => [...r.cells].map((c) => c.textContent))"
    )
    return {row[0]: float(row[1].replace("−", "-")) for row in rows}


def act(browser: Browser, script: str) -> None:
    """Do something, and wait until the plots are updated."""
    before = browser.evaluate("Number(document.documentElement.dataset.updated ?? 0)")
    browser.evaluate(script)
    browser.wait_for(f"Number(document.documentElement.dataset.updated ?? 0) > {before}")


def choose(browser: Browser, control: str, value: str) -> None:
    element = f"document.querySelector({control!r})"
    act(browser, f"{element}.value = {value!r}; {element}.dispatchEvent(new Event('change'))")


@needs_browser
def test_any_masks_together(browser: Browser, place: Path) -> None:
    study = whole_study()
    browser.open(place / "whole.html")
    every = ["100100", "010010", "001001"]
    at_first = shown_pooled(browser)
    final = [run.rows[-1].ood.r2 for run in study.runs if (run.model, run.support) == ("transformer", "connected+")]
    assert at_first["transformer"] == pytest.approx(np.mean(final), abs=6e-5)  # all masks together: the split's R²
    path = "document.querySelector('[data-panel=explore] .mark-line path').getAttribute('d')"
    line = browser.evaluate(path)
    act(browser, "document.querySelector('input[value=\"010010\"]').click()")
    for model in ("transformer", "hypertransformer"):
        expected = pooled_by_hand(study, model, ["100100", "001001"])
        assert shown_pooled(browser)[model] == pytest.approx(expected, abs=6e-5)
        assert abs(expected - pooled_by_hand(study, model, every)) > 1e-3
    assert browser.evaluate(path) != line
    act(browser, "document.getElementById('none').click()")
    assert shown_pooled(browser) == {}
    act(browser, "document.getElementById('all').click()")
    assert shown_pooled(browser) == at_first
    choose(browser, "#split", "in_dist")
    assert browser.evaluate("document.querySelectorAll('input[name=mask]').length") == 12
    choose(browser, "#split", "control")
    assert browser.evaluate("document.getElementById('mask-boxes').hidden")
    control = [
        run.rows[-1].control.r2 for run in study.runs if (run.model, run.support) == ("transformer", "connected+")
    ]
    assert shown_pooled(browser)["transformer"] == pytest.approx(np.mean(control), abs=6e-5)
    assert browser.problems == []


@needs_browser
def test_seeds_models_and_supports(browser: Browser, place: Path) -> None:
    study = whole_study()
    browser.open(place / "whole.html")
    choose(browser, "#seed", "2")
    choose(browser, "#support", "2")  # disconnected
    act(browser, "document.querySelector('input[name=model][value=\"0\"]').click()")
    rows = browser.evaluate("window.recombine.tables('ood')")["ood_means"]
    run = next(r for r in study.runs if (r.model, r.support, r.seed) == ("hypertransformer", "disconnected", 2))
    assert {row["model"] for row in rows} == {"hypertransformer"}
    assert rows[-1]["mean"] == pytest.approx(run.rows[-1].ood.r2, rel=1e-5)
    assert rows[-1]["seeds"] == 1
    assert browser.evaluate("document.querySelector('.support').textContent") == "disconnected"
    marks = "document.querySelectorAll('[data-panel=ood] .mark-line path').length"
    assert browser.evaluate(marks) == 1  # one line is drawn, of the model that is left
    assert browser.problems == []


@needs_browser
@pytest.mark.parametrize("name", ["whole", "hostile", "half"])
def test_a_phone_needs_no_sideways_scrolling(browser: Browser, place: Path, name: str) -> None:
    browser.open(place / f"{name}.html", width=390, height=844)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    right = (
        "Math.max(...[...document.querySelectorAll('.plot svg.marks')].map((svg) => svg.getBoundingClientRect().right))"
    )
    assert browser.evaluate(right) <= 390.5
    assert browser.evaluate("document.querySelector('.plot svg.marks').getBoundingClientRect().width") > 250
    browser.resize(1280)
    browser.wait_for("document.querySelector('.plot svg.marks').getBoundingClientRect().width > 420")


LUMINANCE = """(() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (text) => {
    const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = parts(text).map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = getComputedStyle(e).backgroundColor;
      if (!color.startsWith('rgba(0, 0, 0, 0')) return color;
    }
    return 'rgb(255, 255, 255)';
  };
  const low = [];
  const kinds = 'h1, h2, h3, p, th, td, small, label, code, button, select, .badge, .state, .need';
  for (const element of document.querySelectorAll(kinds)) {
    if (!element.textContent.trim() || element.closest('.vega-embed')) continue;
    const [a, b] = [light(getComputedStyle(element).color), light(ground(element))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) low.push(element.tagName + '.' + element.className);
  }
  return low;
})()"""


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(browser: Browser, place: Path, scheme: str) -> None:
    browser.open(place / "half.html", scheme=scheme)
    theme = "document.documentElement.dataset.theme"
    assert browser.evaluate(theme) == scheme
    assert browser.evaluate(LUMINANCE) == []
    other = {"light": "dark", "dark": "light"}[scheme]
    grounds = {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 28, 35)"}
    plot = "document.querySelector('.plot[data-panel=explore] svg.marks')"
    browser.evaluate("document.getElementById('theme').click()")
    browser.wait_for(f"{plot} !== null && getComputedStyle({plot}).backgroundColor === '{grounds[other]}'")
    assert browser.evaluate(theme) == other
    assert browser.evaluate(LUMINANCE) == []
    browser.evaluate("localStorage.clear()")
    assert browser.problems == []


@needs_browser
def test_the_choice_of_light_is_kept(browser: Browser, place: Path) -> None:
    browser.open(place / "half.html", scheme="light")
    browser.evaluate("document.getElementById('theme').click()")
    browser.open(place / "half.html", scheme="light")
    assert browser.evaluate("document.documentElement.dataset.theme") == "dark"
    browser.evaluate("localStorage.clear()")


@needs_browser
def test_tables_and_controls_have_names(browser: Browser, place: Path) -> None:
    browser.open(place / "whole.html")
    nameless = "[...document.querySelectorAll('input, select')].filter((e) => !e.labels.length).length"
    assert browser.evaluate(nameless) == 0
    assert browser.evaluate(
        "[...document.querySelectorAll('table')].every((t) => t.tHead.querySelectorAll('th[scope=col]').length)"
    )
    levels = browser.evaluate("[...document.querySelectorAll('h1, h2, h3')].map((h) => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))


@needs_browser
@pytest.mark.skipif(not AXE, reason="needs axe-core-python, of the extra dev")
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_axe_finds_nothing_serious(browser: Browser, place: Path, width: int, scheme: str) -> None:
    browser.open(place / "whole.html", width=width, scheme=scheme)
    assert browser.serious() == []
    if width == 390:
        assert browser.evaluate("document.documentElement.scrollHeight") < 8_000, "sections are folded on a phone"


@needs_browser
def test_a_tooltip_has_the_exact_value(browser: Browser, place: Path) -> None:
    browser.open(place / "half.html")
    x, y = browser.evaluate(
        "(() => { const e = [...document.querySelectorAll('[data-panel=in_dist] .mark-symbol path')].at(-1);"
        " e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
        " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
    )
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x - 4, y=y)
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    browser.wait_for("document.querySelector('#vg-tooltip-element.visible') !== null")
    text = browser.evaluate("document.querySelector('#vg-tooltip-element').innerText")
    run = half_study().runs[0]
    step = max(row.step for row in run.rows)
    value = run.rows[-1].in_dist.r2
    assert f"{step:,}" in text
    assert f"{value:.4f}" in text
    assert run.model in text
    assert "undefined" not in text
    assert "seeds" in text
