"""The page in a real browser: the flows of both views, with no complaint in the console and no request elsewhere."""

import json
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
import tomli_w

from recombine.cli.serve import demo_directory
from recombine.experiment.sweep import SELECTION, SELECTION_FORMAT
from tests.report.browser import CHROMIUM, Browser
from tests.serve.server import Address, serving

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, a package of make system-deps")

LOADING = 180.0  # seconds for models to be loaded and compiled, on a busy machine

EVIL = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's runs, and one whose every text is hostile."""
    place = tmp_path_factory.mktemp("place") / "runs"
    shutil.copytree(demo_directory() / "quick", place / "demo")
    evil = place / f"evil {EVIL.replace('/', '_')}"
    shutil.copytree(demo_directory() / "quick/transformer-connected+-seed0", evil)
    config = tomllib.loads((evil / "config.toml").read_text())
    config["task"]["support"] = {"name": EVIL, "masks": ["110000", "011111"], "held_out": ["101000"]}
    (evil / "config.toml").write_text(tomli_w.dumps(config))
    rows = [json.loads(line) for line in (evil / "metrics.jsonl").read_text().splitlines()]
    rows[-1] |= {EVIL: EVIL, "probe": {EVIL: [1]}}
    (evil / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (evil / "status.json").write_text(json.dumps({"state": EVIL, "step": 3, "error": EVIL}))
    swept = place / f"swept {EVIL.replace('/', '_')}"
    shutil.copytree(demo_directory() / "quick/transformer-connected+-seed0", swept / "one")
    line = {"name": "one", "configuration": EVIL, "seed": 0, "point": {EVIL: EVIL}, "num_steps": 10_000}
    (swept / "sweep.jsonl").write_text(json.dumps(line) + "\n")
    found = {"format": SELECTION_FORMAT, "step": 10_000, "select": {"ood": {"r2": 0.5}}, "report": {}}
    (swept / "one" / SELECTION).write_text(json.dumps(found))
    return place


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[Address]:
    with serving(place) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


def assert_clean(browser: Browser, server: Address) -> None:
    assert browser.problems == []
    assert [url for url in browser.requests if not url.startswith((server.url, "blob:", "data:"))] == []
    assert browser.evaluate("window.hacked") is None


def click(browser: Browser, selector: str) -> None:
    event = "new MouseEvent('click', {bubbles: true})"
    browser.evaluate(f"document.querySelector({json.dumps(selector)}).dispatchEvent({event})")


def put(selector: str, value: object) -> str:
    """A value into a field, as by hand."""
    field = f"document.querySelector({json.dumps(selector)})"
    return f"{{ {field}.value = {json.dumps(value)}; {field}.dispatchEvent(new Event('input')) }}"


def press(module: int) -> str:
    """Enter on a module of the graph."""
    event = "new KeyboardEvent('keydown', {key: 'Enter', bubbles: true})"
    return f"document.querySelector('[data-module=\"{module}\"]').dispatchEvent({event})"


def test_runs(browser: Browser, server: Address) -> None:
    browser.open(f"{server.url}/#runs", ready="runs", patience=LOADING)
    rows = "[...document.querySelectorAll('#table tbody tr')].filter((row) => !row.hidden)"
    assert browser.evaluate(f"{rows}.length") == 8
    browser.evaluate(put("#filter", "disconnected hyper"))
    assert browser.evaluate(f"{rows}.length") == 1
    browser.evaluate(put("#filter", ""))
    focused = "select demo/transformer-disconnected-seed0"
    browser.evaluate(f"document.querySelector('input[aria-label=\"{focused}\"]').focus()")
    click(browser, "[data-sort=ood]")
    assert browser.evaluate("document.activeElement.ariaLabel") == focused, "the rows move, and it with its own"
    shown = browser.evaluate(f"{rows}.map((row) => Number(row.lastChild.textContent))")
    assert shown == sorted(shown, reverse=True)
    click(browser, "#pick-none")
    assert browser.evaluate("location.hash").endswith("none=1")
    browser.evaluate("document.getElementById('skip').click()")
    assert browser.evaluate("document.activeElement.id") == "content"
    for name in ("transformer-connected+-seed0", "hypertransformer-connected+-seed0"):
        click(browser, f"input[aria-label='select demo/{name}']")
    browser.wait_for("document.querySelector('#difference table')?.textContent.includes('model.kind')")
    browser.wait_for("document.querySelectorAll('#curves svg path').length > 2")
    browser.wait_for("document.querySelectorAll('#claims li').length === 7")
    heights = "[...document.querySelectorAll('#curves .mark-line path')].map((path) => path.getBBox().height)"
    assert min(browser.evaluate(heights)) > 20, "pixels: the curves rise"
    link = browser.evaluate("location.hash")
    browser.open(f"{server.url}/{link}", ready="runs", patience=LOADING)
    assert browser.evaluate("document.querySelectorAll('#table input:checked').length") == 2, "a link restores the view"
    assert_clean(browser, server)


def test_a_run_that_appears_changes_and_goes(browser: Browser, server: Address, place: Path) -> None:
    browser.open(f"{server.url}/#runs", ready="runs", patience=LOADING)
    browser.wait_for("document.getElementById('live').textContent === 'live'")
    row = "[...document.querySelectorAll('#table tbody tr')].find((row) => row.textContent.includes('later'))"
    shutil.copytree(demo_directory() / "quick/hypertransformer-connected+-seed0", place / "later")
    browser.wait_for(f"{row} !== undefined")
    (place / "later" / "status.json").write_text(json.dumps({"state": "failed", "step": 77, "error": "disk full"}))
    browser.wait_for(f"{row}.textContent.includes('failed')")
    browser.wait_for(f"{row}.textContent.includes('disk full')")
    (place / "later" / "status.json").write_text("{")
    browser.wait_for(f"{row}.textContent.includes('status.json cannot be read')")
    (place / "later" / "config.toml").write_text("half wri")
    browser.wait_for(f"{row}.textContent.includes('unreadable')")
    (place / "later" / "config.toml").unlink()
    browser.wait_for(f"{row}.textContent.includes('it has no config.toml')")
    shutil.rmtree(place / "later")
    browser.wait_for(f"{row} === undefined")
    assert_clean(browser, server)


def test_a_link_in_a_page_that_is_open(browser: Browser, server: Address, place: Path) -> None:
    """It is followed, and not overwritten by what was there; and who explores a run that goes keeps what was shown."""
    browser.open(f"{server.url}/#runs", ready="runs", patience=LOADING)
    shutil.copytree(demo_directory() / "quick/hypertransformer-connected+-seed0", place / "goes")
    browser.wait_for("document.getElementById('table').textContent.includes('goes')")
    browser.evaluate("location.hash = '#runs&q=discon&metric=loss'")
    browser.wait_for("document.getElementById('filter').value === 'discon'")
    assert browser.evaluate("document.getElementById('metric').value") == "loss"
    assert browser.evaluate("document.querySelectorAll('#table tbody tr').length") == 2
    link = urlencode({"run0": "goes", "weights": "1,0.5,0,0,0,0", "length": 8})
    browser.evaluate(f"location.hash = '#explore&{link}'")
    summary = "document.getElementById('summary').textContent"
    browser.wait_for(f"{summary}.includes('trained on')", LOADING)
    assert browser.evaluate("document.getElementById('length-value').textContent") == "8"
    assert browser.evaluate("document.querySelectorAll('#weights input').length") == 2
    before = browser.evaluate(summary)
    shutil.rmtree(place / "goes")
    browser.wait_for("document.getElementById('trouble').textContent.includes('goes: no longer here')")
    assert browser.evaluate("document.getElementById('run0').value") == "goes"
    assert browser.evaluate(summary) == before
    browser.evaluate(f"location.hash = '#explore&{link.replace('0.5', '1').replace('goes', 'never')}'")
    browser.wait_for("document.getElementById('trouble').textContent.includes('no such run')")
    assert browser.evaluate("document.getElementById('length').matches(':disabled')"), "of nothing, nothing is composed"
    browser.problems = [problem for problem in browser.problems if "400" not in problem]  # that was the server's answer
    assert_clean(browser, server)


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
    answered(press(2))
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
    link = browser.evaluate("location.hash")
    assert "latent1=" in link
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
        assert browser.evaluate(f"document.querySelectorAll('#{plot} svg path').length") > 3, plot
    for plot, (columns, rows) in SAVED.items():
        svg, csv = saved(browser, plot)
        assert svg.startswith("<svg"), plot
        assert csv.splitlines()[0] == columns, plot
        assert len(csv.splitlines()) == 1 + rows, plot
    assert_clean(browser, server)


# What a plot's data have: with three context examples, of two models with two layers of four heads each.
SAVED = {
    "scatter": ("query,truth,predicted,model,run", 2 * 160),
    "slice": ("t,y,model", 3 * 61 + 3),
    "latent": ("module,value,model,deviation,run", 3 * 6),
    "attention": ("model,run,layer,head,token,weight", 2 * 2 * 4 * 4),
}


def saved(browser: Browser, plot: str) -> list[str]:
    """What the buttons below a plot save: its picture, and its data."""
    script = """(() => {
        const kept = [], make = URL.createObjectURL;
        URL.createObjectURL = (blob) => { kept.push(blob.text()); return make(blob); };
        document.querySelectorAll('#PLOT .saves button').forEach((button) => button.click());
        return new Promise((done) => setTimeout(() => { URL.createObjectURL = make; done(Promise.all(kept)); }, 500));
    })()"""
    return sorted(browser.evaluate(script.replace("PLOT", plot)))  # "<" comes before letters


def test_by_keyboard(browser: Browser, server: Address) -> None:
    """From the top of the page with nothing but keys: a module, a weight, the number of examples; the focus stays."""
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


def test_hostile_words_in_every_place(browser: Browser, server: Address, place: Path) -> None:
    """The difference between two runs, a sweep, a line's name, the data that are saved."""
    (evil,) = [path.name for path in place.iterdir() if path.name.startswith("evil")]
    link = urlencode([("run", evil), ("run", "demo/transformer-connected+-seed0"), ("each", "1")])
    browser.open(f"{server.url}/#runs&{link}", ready="runs", patience=LOADING)
    browser.wait_for("document.querySelector('#difference table')?.textContent.includes('support')")
    assert EVIL in browser.evaluate("document.getElementById('difference').textContent")
    assert EVIL in browser.evaluate("document.getElementById('sweeps').textContent")
    browser.wait_for("document.querySelector('#curves svg') !== null")
    assert EVIL.replace("/", "_") in browser.evaluate("document.querySelector('#curves .chart').ariaLabel")
    svg, csv = saved(browser, "curves")
    assert "<script" not in svg
    assert EVIL.replace("/", "_").replace('"', '""') in csv
    assert_clean(browser, server)


def test_lines_that_look_alike_and_lines_out_of_sight(browser: Browser, tmp_path: Path) -> None:
    """Learning rates of one model and support, one of which fell: told apart, and told of. No name is a formula."""
    for i, name in enumerate(("=1+1", "rate", "fell")):
        path = tmp_path / name
        shutil.copytree(demo_directory() / "quick/transformer-connected+-seed0", path)
        config = tomllib.loads((path / "config.toml").read_text())
        config["optimizer"]["learning_rate"] = 0.001 * (i + 1)
        (path / "config.toml").write_text(tomli_w.dumps(config))
    rows = [json.loads(line) for line in (tmp_path / "fell" / "metrics.jsonl").read_text().splitlines()]
    for row in rows[-2:]:
        row["ood"]["r2"] = -5.0
    (tmp_path / "fell" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with serving(tmp_path) as server:
        browser.open(f"{server.url}/#runs", ready="runs", patience=LOADING)
        browser.wait_for("document.querySelector('#curves svg') !== null")
        legend = "[...document.querySelectorAll('#curves .role-legend-label text')].map((one) => one.textContent)"
        assert {"=1+1", "rate", "fell"} <= set(browser.evaluate(legend))
        shapes = (
            "[...document.querySelectorAll('#curves .role-legend-symbol path')].map((one) => one.getAttribute('d'))"
        )
        assert len(set(browser.evaluate(shapes))) >= 3
        assert (
            browser.evaluate("document.getElementById('below').textContent") == "Below the plot at the end: fell −5.000"
        )
        _, csv = saved(browser, "curves")
        assert "'=1+1," in csv
        assert_clean(browser, server)


def test_seeds_have_a_mean_and_an_interval(browser: Browser, tmp_path: Path) -> None:
    """Of three of them; and the axis begins where the curves are, not at 0."""
    for seed in range(3):
        path = tmp_path / f"run-seed{seed}"
        shutil.copytree(demo_directory() / "quick/transformer-connected+-seed0", path)
        config = tomllib.loads((path / "config.toml").read_text()) | {"seed": seed}
        (path / "config.toml").write_text(tomli_w.dumps(config))
        rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        for row in rows:
            row["ood"]["r2"] = 0.7 + 0.01 * seed
        (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with serving(tmp_path) as server:
        browser.open(f"{server.url}/#runs", ready="runs", patience=LOADING)
        browser.wait_for("document.querySelector('#curves svg') !== null")
        _, csv = saved(browser, "curves")
        names, *lines = [line.split(",") for line in csv.splitlines()]
        last = dict(zip(names, lines[-1], strict=True))
        half = 4.302652729911275 * 0.01 / 3**0.5  # of Student's t with two degrees of freedom
        found = [float(last[name]) for name in ("mean", "low", "high", "seeds")]
        assert found == pytest.approx([0.71, 0.71 - half, 0.71 + half, 3], abs=1e-6)
        axis = "[...document.querySelectorAll('#curves .role-axis-label text')].map((one) => one.textContent)"
        shown = set(browser.evaluate(axis))
        assert "0.70" in shown or "0.7" in shown
        assert not shown & {"0.0", "0.2", "0.4"}
        assert_clean(browser, server)


def test_explore_before_there_is_anything(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        browser.open(f"{server.url}/#explore", ready="explore", patience=LOADING)
        assert "No trained model here" in browser.evaluate("document.getElementById('summary').textContent")
        browser.wait_for("document.getElementById('live').textContent === 'live'")
        shutil.copytree(demo_directory() / "quick/hypertransformer-connected+-seed0", tmp_path / "first")
        browser.wait_for("document.getElementById('summary').textContent.includes('R²')", LOADING)
        assert browser.evaluate("document.getElementById('run0').value") == "first"
        assert_clean(browser, server)


def test_a_link_on_another_page(browser: Browser, server: Address) -> None:
    """In a mail, say: it opens the view that it names."""
    page = f'data:text/html,<html data-ready="yes"><a href="{server.url}/%23runs%26q=discon">a link</a>'
    browser.open(page)
    browser.evaluate("document.querySelector('a').click()")
    browser.wait_for("document.documentElement?.dataset.ready === 'runs'", LOADING)
    assert browser.evaluate("document.getElementById('filter').value") == "discon"


def test_runs_on_a_phone(browser: Browser, server: Address) -> None:
    for width in (320, 390):
        browser.open(f"{server.url}/#runs", width=width, ready="runs", patience=LOADING)
        browser.wait_for("document.querySelector('#curves svg') !== null")
        assert browser.evaluate("document.documentElement.scrollWidth") <= width


def test_masks_of_any_number_of_modules(browser: Browser, server: Address, place: Path) -> None:
    """The hostile run's support: a pair and five at once trained on, a pair held out."""
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


def test_names_for_those_who_do_not_see(browser: Browser, server: Address) -> None:
    """Every control that can be reached has a name."""
    for view in ("runs", "explore"):
        browser.open(f"{server.url}/#{view}", ready=view, patience=LOADING)
        tree = browser.call("Accessibility.getFullAXTree")["nodes"]
        controls = {"button", "checkbox", "combobox", "slider", "radio", "searchbox", "link", "MenuListPopup"}
        named = [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in tree
            if node.get("role", {}).get("value") in controls - {"MenuListPopup"} and not node.get("ignored")
        ]
        assert len(named) > 8
        assert [role for role, name in named if not name.strip()] == []
