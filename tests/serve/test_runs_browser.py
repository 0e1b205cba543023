"""The table of runs in a real browser, with no errors in the console and no requests to other hosts."""

import json
import shutil
import tomllib
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
import tomli_w

from recombine.record.codec import encode
from recombine.record.run_state import Status
from tests.page.browser import AXE, CHROMIUM, Browser
from tests.serve.browsing import EVIL, LOADING, assert_clean, click, put, saved
from tests.serve.server import Address, copy_demo_run, serving

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, a package of make system-deps")


def test_runs(browser: Browser, server: Address) -> None:
    browser.open(f"{server.url}/#runs&study=&flat=1", ready="runs", patience=LOADING)
    rows = "[...document.querySelectorAll('#table tbody tr')].filter((row) => !row.hidden)"
    assert browser.evaluate(f"{rows}.length") == 8
    browser.evaluate(put("#filter", "disconnected hyper"))
    assert browser.evaluate(f"{rows}.length") == 1
    browser.evaluate(put("#filter", "-hyper -disconnected demo"))
    names = f"{rows}.map((row) => row.querySelector('bdi').textContent).sort()"
    assert browser.evaluate(names) == ["demo/transformer-connected+-seed0", "demo/transformer-connected-seed0"]
    browser.evaluate(put("#filter", ""))
    focused = "select demo/transformer-disconnected-seed0"
    browser.evaluate(f"document.querySelector('input[aria-label=\"{focused}\"]').focus()")
    click(browser, "[data-sort=ood]")
    assert browser.evaluate("document.activeElement.ariaLabel") == focused, "the rows move, and it with its own"
    shown = browser.evaluate(f"{rows}.map((row) => Number(row.querySelectorAll('.score')[2].textContent))")
    assert shown == sorted(shown, reverse=True)
    click(browser, "#pick-none")
    assert browser.evaluate("location.hash").endswith("none=1"), "nothing is selected"
    browser.evaluate("document.getElementById('skip').click()")
    assert browser.evaluate("document.activeElement.id") == "content"
    for name in ("transformer-connected+-seed0", "hypertransformer-connected+-seed0"):
        click(browser, f"input[aria-label='select demo/{name}']")
    browser.wait_for("document.querySelector('#difference table')?.textContent.includes('model.kind')")
    browser.wait_for("document.querySelectorAll('#curves svg path').length > 2")
    heights = "[...document.querySelectorAll('#curves .curve')].map((path) => path.getBBox().height)"
    assert min(browser.evaluate(heights)) > 20, "pixels: the curves rise"
    link = browser.evaluate("location.hash")
    browser.open(f"{server.url}/{link}", ready="runs", patience=LOADING)
    assert browser.evaluate("document.querySelectorAll('#table input:checked').length") == 2, "a link restores the view"
    assert_clean(browser, server)


def test_a_run_that_appears_changes_and_goes(browser: Browser, server: Address, place: Path) -> None:
    browser.open(f"{server.url}/#runs&study=", ready="runs", patience=LOADING)
    browser.wait_for("document.getElementById('live').textContent === 'live'")
    row = "[...document.querySelectorAll('#table tbody tr')].find((row) => row.textContent.includes('later'))"
    copy_demo_run("quick/hypertransformer-connected+-seed0", place / "later")
    browser.wait_for(f"{row} !== undefined")
    (place / "later" / "status.json").write_text(encode(Status("failed", 77, 10_000, error="disk full")))
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
    """The page follows the link, and does not overwrite it. If an explored run is removed, its results stay visible."""
    browser.open(f"{server.url}/#runs&study=", ready="runs", patience=LOADING)
    copy_demo_run("quick/hypertransformer-connected+-seed0", place / "goes")
    browser.wait_for("document.getElementById('table').textContent.includes('goes')")
    browser.evaluate("location.hash = '#runs&q=discon&smooth=0.5'")
    browser.wait_for("document.getElementById('filter').value === 'discon'")
    assert browser.evaluate("document.getElementById('smooth').value") == "0.5"
    assert browser.evaluate("document.querySelectorAll('#table tbody tr').length") == 2
    link = urlencode({"run0": "goes", "weights": "1,0.5,0,0,0,0", "length": 8})
    browser.evaluate(f"location.hash = '#explore&{link}'")
    summary = "document.getElementById('summary').textContent"
    browser.wait_for(f"{summary}.includes('trained on')", LOADING)
    assert browser.evaluate("document.getElementById('length-value').textContent") == "8"
    assert browser.evaluate("document.querySelectorAll('#weights input').length") == 2
    before = browser.evaluate(summary)
    shutil.rmtree(place / "goes")
    browser.wait_for("document.getElementById('trouble').textContent.includes('goes: removed')")
    assert browser.evaluate("document.getElementById('run0').value") == "goes"
    assert browser.evaluate(summary) == before
    browser.evaluate(f"location.hash = '#explore&{link.replace('0.5', '1').replace('goes', 'never')}'")
    browser.wait_for("document.getElementById('trouble').textContent.includes('no such run')")
    assert browser.evaluate("document.getElementById('length').matches(':disabled')"), "of nothing, nothing is composed"
    browser.problems = [problem for problem in browser.problems if "400" not in problem]  # that was the server's answer
    assert_clean(browser, server)


def test_hostile_words_in_every_place(browser: Browser, server: Address, place: Path) -> None:
    """In the difference between two runs, in a sweep, in the name of a line, and in the saved data."""
    (evil,) = [path.name for path in place.iterdir() if path.name.startswith("evil")]
    link = urlencode([("run", evil), ("run", "demo/transformer-connected+-seed0"), ("each", "1")])
    browser.open(f"{server.url}/#runs&{link}", ready="runs", patience=LOADING)
    browser.wait_for("document.querySelector('#difference table')?.textContent.includes('support')")
    assert EVIL in browser.evaluate("document.getElementById('difference').textContent")
    assert EVIL in browser.evaluate("document.getElementById('sweeps').textContent")
    browser.wait_for("document.querySelector('#curves svg') !== null")
    assert EVIL.replace("/", "_") in browser.evaluate("document.querySelector('#curves svg').ariaLabel")
    svg, csv = saved(browser, "curve-options")
    assert "<script" not in svg
    assert EVIL.replace("/", "_").replace('"', '""') in csv
    assert_clean(browser, server)


def test_lines_that_look_alike_and_lines_out_of_sight(browser: Browser, tmp_path: Path) -> None:
    """Lines of one model and support get symbols; a line below the plot is mentioned. No name becomes a formula."""
    for i, name in enumerate(("=1+1", "rate", "fell")):
        path = tmp_path / name
        copy_demo_run("quick/transformer-connected+-seed0", path)
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
        legend = "[...document.querySelectorAll('#lines bdi')].map((one) => one.textContent)"
        assert {"=1+1", "rate", "fell"} <= set(browser.evaluate(legend))
        shapes = "[...document.querySelectorAll('#lines button path')].map((one) => one.getAttribute('d'))"
        assert len(set(browser.evaluate(shapes))) >= 3
        below = browser.evaluate("document.getElementById('below').textContent")
        assert below.endswith("fell −5.000 (ood)")
        _, csv = saved(browser, "curve-options")
        assert "'=1+1," in csv
        assert_clean(browser, server)


def test_seeds_have_a_mean_and_an_interval(browser: Browser, tmp_path: Path) -> None:
    """Three seeds are averaged; the axis starts where the curves are, not at 0."""
    for seed in range(3):
        path = tmp_path / f"run-seed{seed}"
        copy_demo_run("quick/transformer-connected+-seed0", path)
        config = tomllib.loads((path / "config.toml").read_text()) | {"seed": seed}
        (path / "config.toml").write_text(tomli_w.dumps(config))
        rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        for row in rows:
            row["ood"]["r2"] = 0.7 + 0.01 * seed
        (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with serving(tmp_path) as server:
        browser.open(f"{server.url}/#runs", ready="runs", patience=LOADING)
        browser.wait_for("document.querySelector('#curves svg') !== null")
        _, csv = saved(browser, "curve-options")
        names, *lines = [line.split(",") for line in csv.splitlines()]
        ood = [found for line in lines if (found := dict(zip(names, line, strict=True)))["metric"] == "ood"]
        half = 4.302652729911275 * 0.01 / 3**0.5  # of Student's t with two degrees of freedom
        found = [float(ood[-1][name]) for name in ("mean", "low", "high", "seeds")]
        assert found == pytest.approx([0.71, 0.71 - half, 0.71 + half, 3], abs=1e-6)
        axis = "[...document.querySelectorAll('#curves [data-metric=ood] .tick')].map((one) => one.textContent)"
        shown = set(browser.evaluate(axis))
        assert "0.7" in shown
        assert not shown & {"0", "0.2", "0.4"}
        assert_clean(browser, server)


def test_the_workspace(browser: Browser, server: Address) -> None:
    """The rule reads every line in every plot; drags zoom; lines are hidden; a claim shows its curve and criterion."""
    browser.open(f"{server.url}/#runs&study=demo", ready="runs", patience=LOADING)
    browser.wait_for("document.querySelectorAll('#claims li').length === 7", LOADING)
    assert browser.evaluate("document.querySelectorAll('#curves g[data-metric]').length") == 5, (
        "the demo measured no novel part"
    )
    box = "document.querySelector('#curves [data-metric=ood]').getBoundingClientRect()"
    left, top = browser.evaluate(f"(({{x, y}}) => [x, y])({box})")
    at = [(left + 90 + 10 * i, top + 70) for i in range(9)]
    for x, y in at[:2]:
        browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    assert browser.evaluate("document.querySelectorAll('#curves .rule').length") == 5
    step = int(browser.evaluate("document.getElementById('at-step').textContent").split()[3].replace(",", ""))
    name = "transformer-connected+-seed0"
    cells = (
        "[...[...document.querySelectorAll('#lines tbody tr')].find((row) => row.textContent.startsWith('NAME')).cells]"
    )
    shown = browser.evaluate(f"{cells.replace('NAME', name[:-6])}.map((cell) => cell.textContent)")
    curve = server.get(f"/api/curves?run=demo/{quote(name)}&metric=ood&metric=in_dist").json()[f"demo/{name}"]
    row = curve["steps"].index(step)
    assert [float(shown[2]), float(shown[3])] == [round(curve["values"][of][row], 3) for of in ("ood", "in_dist")]
    browser.drag(at)
    browser.wait_for("location.hash.includes('steps=') && !document.getElementById('unzoom').hidden")
    click(browser, "#unzoom")
    drawn = "document.querySelectorAll('#curves [data-metric=ood] .curve').length"
    browser.wait_for(f"document.getElementById('unzoom').hidden && {drawn} === 6")
    click(browser, "#lines button")
    browser.wait_for(f"{drawn} === 5 && location.hash.includes('hide=')")
    click(browser, "#claims li[data-claim='4'] button")
    marks = "[...document.querySelectorAll('#curves text.threshold')].map((one) => one.parentNode.dataset.metric)"
    browser.wait_for(f"{marks}.length === 2")
    assert browser.evaluate(marks) == ["probe", "probe"]
    browser.evaluate("document.getElementById('only').click()")
    click(browser, f"input[aria-label='select demo/{name}']")
    browser.wait_for("document.querySelectorAll('#table tbody tr').length === 5")
    assert_clean(browser, server)


def test_one_switch_and_the_page_of_a_run(browser: Browser, tmp_path: Path) -> None:
    """The study's table has columns for the settings that differ. A row leads to its run, and from there to explore."""
    for i, study in enumerate(("one", "two", "two")):
        path = tmp_path / study / f"transformer-learning_rate={i}-seed0"
        copy_demo_run("quick/transformer-connected+-seed0", path)
        config = tomllib.loads((path / "config.toml").read_text())
        config["optimizer"]["learning_rate"] = 0.001 * (i + 1)
        (path / "config.toml").write_text(tomli_w.dumps(config))
    with serving(tmp_path) as server:
        browser.open(f"{server.url}/#runs", ready="runs", patience=LOADING)
        fields = "[...document.querySelectorAll('#table td.field')].map((cell) => cell.textContent)"
        browser.wait_for(f"{fields}.join() === '0.002,0.003'")
        browser.evaluate(
            "{ const s = document.getElementById('study'); s.value = ''; s.dispatchEvent(new Event('change')) }"
        )
        browser.wait_for("document.querySelectorAll('#table tr.group').length === 2")
        click(browser, "#table tr.group button")
        browser.wait_for(
            "location.hash.includes('study=one') && document.querySelectorAll('#table tbody tr').length === 1"
        )
        browser.evaluate("document.querySelector('#table tbody th a').click()")
        browser.wait_for("document.documentElement.dataset.ready === 'run'", LOADING)
        for part, text in (
            ("config", "learning_rate"),
            ("log", "started"),
            ("scores", "θ₁+θ₄"),
            ("curves", "training loss"),
        ):
            assert text in browser.evaluate(f"document.getElementById('run-{part}').textContent"), part
        browser.evaluate("document.getElementById('run-explore').click()")
        browser.wait_for("document.getElementById('run0').value.startsWith('one/')", LOADING)
        assert_clean(browser, server)


def test_a_link_on_another_page(browser: Browser, server: Address) -> None:
    """A link in an e-mail, for example, opens the view that it names."""
    page = f'data:text/html,<html data-ready="yes"><a href="{server.url}/%23runs%26q=discon">a link</a>'
    browser.open(page)
    browser.evaluate("document.querySelector('a').click()")
    browser.wait_for("document.documentElement?.dataset.ready === 'runs'", LOADING)
    assert browser.evaluate("document.getElementById('filter').value") == "discon"


def test_a_page_that_was_there_before_the_runs(browser: Browser, tmp_path: Path) -> None:
    """Runs are selected and judged as they appear, until the user selects others."""
    with serving(tmp_path) as server:
        browser.open(f"{server.url}/#runs", ready="runs", patience=LOADING)
        browser.wait_for("document.getElementById('live').textContent === 'live'")
        count = "document.getElementById('count').textContent"
        for i in range(2):
            copy_demo_run("quick/transformer-connected+-seed0", tmp_path / f"study/run{i}")
            browser.wait_for(f"{count} === '{i + 1} of {i + 1} runs, {i + 1} selected'")
        browser.wait_for("document.querySelectorAll('#claims li').length === 7", LOADING)
        browser.wait_for("document.querySelector('#curves svg') !== null")
        click(browser, "#pick-none")
        copy_demo_run("quick/transformer-connected+-seed0", tmp_path / "study/run2")
        browser.wait_for(f"{count} === '3 of 3 runs, 0 selected'")
        assert_clean(browser, server)


def test_runs_on_a_phone(browser: Browser, server: Address) -> None:
    for width in (320, 390):
        browser.open(f"{server.url}/#runs", width=width, ready="runs", patience=LOADING)
        browser.wait_for("document.querySelector('#curves svg') !== null")
        assert browser.evaluate("document.documentElement.scrollWidth") <= width


def test_names_for_those_who_do_not_see(browser: Browser, server: Address) -> None:
    """Every control that can be reached has a name for screen readers."""
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


@pytest.mark.skipif(not AXE, reason="needs axe-core-python, of the extra dev")
@pytest.mark.parametrize("view", ["runs&claim=4", "run&name=demo/transformer-connected%2B-seed0"])
def test_axe_finds_nothing_serious(browser: Browser, server: Address, view: str) -> None:
    browser.open(f"{server.url}/#{view}", ready=view.partition("&")[0], patience=LOADING)
    assert browser.serious() == []
