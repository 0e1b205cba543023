"""The models that the page runs itself: its numbers are the server's, and every answer of a gesture is drawn."""

import json
import re
from base64 import b64decode
from collections.abc import Sequence
from math import pi, sin
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest

from recombine.config.model import HypertransformerConfig, TransformerConfig
from recombine.config.schema import Config
from recombine.config.task import TaskConfig
from recombine.record.codec import plain
from recombine.serve.explorer.description import is_in_page
from recombine.serve.explorer.exchange import Inputs
from recombine.serve.explorer.explorer import Explorer
from recombine.serve.explorer.in_page import PackedMap, stored_description, stored_model, stored_scene
from tests.page.browser import CHROMIUM, Browser
from tests.serve.browsing import LOADING, assert_clean
from tests.serve.server import Address, copy_demo_run, demo_run, serving
from tests.story.test_parity import TOLERANCE

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, a package of make system-deps")

DRAWINGS, QUESTIONS = (f"Number(document.documentElement.dataset.{name})" for name in ("drawings", "questions"))
SUMMARY = "document.getElementById('summary').textContent"
SETTLED = "document.querySelector('.results').dataset.asking === 'no'"

QUICK = [f"demo/{model}-connected+-seed0" for model in ("transformer", "hypertransformer")]
OTHER_SUPPORT = ["demo/hypertransformer-disconnected-seed0", "demo/hypertransformer-connected+-seed0"]
HELD_OUT, THREE = (0.3, 0, 0, 0.7, 0, 0), (1, 0.5, 0, 0.25, 0, 0)
CASES: list[tuple[list[str], dict[str, Any]]] = [
    (QUICK, {"weights": HELD_OUT}),
    (QUICK, {"weights": THREE, "draw": 3, "direction": 2}),
    (QUICK, {"weights": HELD_OUT, "fresh": 2}),
    (QUICK, {"weights": HELD_OUT, "latents": [None, "true"]}),
    (QUICK, {"weights": HELD_OUT, "latents": [None, {"start": "own", "steps": 3}]}),
    (QUICK, {"weights": HELD_OUT, "latents": [None, {"start": "zero", "steps": 2}]}),
    (OTHER_SUPPORT, {"weights": (0, 0, 1, 1, 0, 0), "latents": ["true", [0.5, -1, 0.25, 2, 0, 1]], "teacher": 1}),
    (QUICK, {"weights": HELD_OUT, "length": 3}),
]
IN_PAGE = """(async (names, task) => {
    const query = new URLSearchParams(names.map((name) => ['run', name]));
    const { models: described } = await (await fetch(`/api/models?${query}`)).json();
    const usual = { length: 15, draw: 0, fresh: null, teacher: 0, direction: 0, latents: [null, null] };
    let last = null;
    for await (const found of recombine.inPage.answers({ names, described, ...usual, ...task })) last = found;
    return last;
})"""


def from_server(server: Address, names: list[str], task: dict[str, Any]) -> dict[str, Any]:
    asked = {"length": 15} | {name: value for name, value in task.items() if name not in ("latents", "teacher")}
    asked["weights"] = ",".join(map(str, task["weights"]))
    asked["teacher_of"] = task.get("teacher", 0)
    for i, latent in enumerate(task.get("latents", ())):
        if isinstance(latent, dict):
            asked[f"latent{i}"] = f"{latent['start']}-{latent['steps']}"
        elif latent is not None:
            asked[f"latent{i}"] = latent if isinstance(latent, str) else ",".join(map(str, latent))
    answer = server.get(f"/api/explore?{urlencode([*(('run', name) for name in names), *asked.items()])}", timeout=600)
    assert answer.status == 200, answer.body
    return answer.json()


def assert_close(one: Any, other: Any, where: str) -> None:
    """The same texts, and the same numbers up to the tolerance of the story's parity."""
    if isinstance(other, dict):
        assert other.keys() <= one.keys(), where
        for name in other:
            assert_close(one[name], other[name], f"{where}.{name}")
    elif isinstance(other, list) and other and isinstance(other[0], dict):
        assert len(one) == len(other)
        for i, (ours, theirs) in enumerate(zip(one, other, strict=True)):
            assert_close(ours, theirs, f"{where}[{i}]")
    elif isinstance(other, list | float | int):
        np.testing.assert_allclose(
            np.asarray(one, float), np.asarray(other, float), atol=TOLERANCE, rtol=TOLERANCE, err_msg=where
        )
    else:
        assert one == other, where


@needs_chromium
def test_the_page_answers_what_the_server_answers(browser: Browser, server: Address) -> None:
    browser.open(f"{server.url}/#runs", ready="runs", patience=LOADING)
    for names, task in CASES:
        answer = browser.evaluate(f"{IN_PAGE}({json.dumps(names)}, {json.dumps(task)})")
        assert_close(answer, from_server(server, names, task), f"{task}")
    assert_clean(browser, server)


@needs_chromium
def test_what_the_page_refuses(browser: Browser, server: Address) -> None:
    browser.open(f"{server.url}/#runs", ready="runs", patience=LOADING)
    refused = {
        "at least one module": {"weights": [0] * 6},
        "a number from 0": {"weights": [1, -1, 0, 0, 0, 0]},
        "an axis": {"direction": 99},
        "has no latent": {"latents": ["true", None]},
        "6 numbers": {"latents": [None, [1, 2]]},
        "another teacher": {"fresh": 1, "latents": [None, "true"]},
        "not finite": {"latents": [None, [1e308] * 6]},
    }
    for words, task in refused.items():
        script = f"{IN_PAGE}({json.dumps(QUICK)}, {json.dumps({'weights': HELD_OUT} | task)})"
        assert words in browser.evaluate(f"{script}.then(() => 'answered', (error) => error.message)")


def path_of(browser: Browser, slider: str, moves: int) -> Sequence[tuple[float, float]]:
    """Points of a drag of a slider, back and forth."""
    found = f"document.querySelector({json.dumps(slider)})"
    browser.evaluate(f"{found}.scrollIntoView({{block: 'center'}})")
    box = f"(({{left, top, height, width}}) => [left, top + height / 2, width])({found}.getBoundingClientRect())"
    left, y, width = browser.evaluate(box)
    return [(left + width * (0.5 + 0.4 * sin(2.2 * pi * i / moves)), y) for i in range(moves)]


# After each drawing: R² in the summary, and R² as the plot of predictions tells it.
WATCH = """{
    const draw = recombine.explorePlots;
    window.seen = [];
    recombine.explorePlots = (given) => {
        draw(given);
        const [summary, plot] = [document.getElementById('summary').textContent,
            document.querySelector('#scatter .chart').ariaLabel].map((text) => text.match(/R² [\\d.−–]+/g));
        seen.push([summary.slice(0, 2), plot]);
    };
}"""


# Three questions, of which the second and the third come before the first has an answer.
AT_ONCE = """((selector) => {
    const range = document.querySelector(selector);
    for (const share of [0.2, 0.5, 0.8]) {
        range.value = Number(range.min) + share * (range.max - range.min);
        range.dispatchEvent(new Event('input'));
    }
})"""


@needs_chromium
@pytest.mark.parametrize("slider", ["#weights input", ".inference input", "#sliders input", "#length"])
def test_every_answer_of_a_drag_is_drawn(browser: Browser, server: Address, slider: str) -> None:
    """A real drag, in the page alone. Each question that was asked is drawn, and the last is the one that was left."""
    browser.open(f"{server.url}/#explore", ready="explore", patience=LOADING)
    browser.evaluate(WATCH)
    points = path_of(browser, slider, 60)
    asked, drawn = browser.evaluate(QUESTIONS), browser.evaluate(DRAWINGS)
    requests = len(browser.requests)
    browser.drag(points)
    browser.evaluate(f"{AT_ONCE}({json.dumps(slider)})")
    browser.wait_for(SETTLED, LOADING)
    asked, drawn = browser.evaluate(QUESTIONS) - asked, browser.evaluate(DRAWINGS) - drawn
    assert 4 <= asked <= drawn, "no answer of the drag was lost"
    asked_for = [url for url in browser.requests[requests:] if "/api/" in url and "/api/scene" not in url]
    assert asked_for == [], "the page asked nobody for an answer"
    seen = browser.evaluate("seen")
    assert len(seen) == drawn
    assert all(numbers == plotted for numbers, plotted in seen), "plots and numbers of one question"
    value = browser.evaluate(f"document.querySelector({json.dumps(slider)}).value")
    browser.wait_for("location.hash.includes('weights=')")
    last, link = browser.evaluate(SUMMARY), browser.evaluate("recombine.explore.save() ?? location.hash")
    browser.open(f"{server.url}/{link}", ready="explore", patience=LOADING)
    assert browser.evaluate(SUMMARY) == last, "the last picture shows the last question"
    assert browser.evaluate(f"document.querySelector({json.dumps(slider)}).value") == value
    assert_clean(browser, server)


@needs_chromium
def test_a_model_that_the_page_cannot_run_is_run_by_the_server(browser: Browser, tmp_path: Path) -> None:
    copy_demo_run("quick/transformer-connected+-seed0", tmp_path / "run")
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace("[task]", "[task]\nlabel_noise = 0.1", 1))
    with serving(tmp_path) as server:
        browser.open(f"{server.url}/#explore", ready="explore", patience=LOADING)
        assert re.search(r"transformer R² \d", browser.evaluate(SUMMARY))
        asked = [url for url in browser.requests if "/api/explore" in url or "/api/weights" in url]
        assert asked
        assert not any("/api/weights" in url for url in asked)
        before, requests = browser.evaluate(DRAWINGS), len(browser.requests)
        browser.drag(path_of(browser, "#weights input", 60))
        browser.wait_for(SETTLED, LOADING)
        asked = [url for url in browser.requests[requests:] if "/api/explore" in url]
        assert 2 <= len(asked) == browser.evaluate(DRAWINGS) - before, "every answer of the server is drawn, too"
        assert server.get("/api/weights?run=run").status == 400
        assert server.get("/api/scene?run=run&draw=0").status == 400


def test_what_the_page_runs() -> None:
    """The kinds of a story, while they are small."""
    assert is_in_page(Config(model=TransformerConfig()))
    assert is_in_page(Config(model=HypertransformerConfig(base_weights=True)))
    assert not is_in_page(Config(model=HypertransformerConfig(unit_norm=True)))
    assert not is_in_page(Config(model=HypertransformerConfig(inference_steps=3)))
    assert not is_in_page(Config(model=TransformerConfig(given_latent=True)))
    assert not is_in_page(Config(model=TransformerConfig(), task=TaskConfig(activation="relu")))
    assert not is_in_page(Config(model=TransformerConfig(embed_dim=512)))
    assert not is_in_page(Config(model=TransformerConfig(embed_dim=1024, num_layers=1)))
    assert not is_in_page(Config(model=HypertransformerConfig(num_layers=1, latent_dim=256, hidden_dim=4096)))


def test_what_is_stored_of_the_demo_is_what_its_runs_give(tmp_path: Path) -> None:
    explorer = Explorer()
    for kind in ("transformer", "hypertransformer"):
        path, copy = demo_run(f"quick/{kind}-disconnected-seed0"), tmp_path / kind
        copy_demo_run(f"quick/{kind}-disconnected-seed0", copy)
        assert stored_description(copy) is None
        assert stored_description(path) == explorer.describe(copy)
        stored, found = stored_model(path), explorer.pack(copy)
        assert stored is not None
        assert stored.model == found.model
        for name in ("probe", "to_inferred"):
            ours, theirs = getattr(stored.maps, name), getattr(found.maps, name)
            assert (ours is None) == (theirs is None)
            if ours is not None:
                for one, other in zip(numbers(ours), numbers(theirs), strict=True):
                    np.testing.assert_allclose(one, other, atol=2e-3)
        scene, drawn = stored_scene(path, 0, None), explorer.scene(copy, Inputs(0))
        assert stored_scene(path, 1, None) is None
        assert plain(scene).keys() == plain(drawn).keys()
        np.testing.assert_allclose(decoded(scene.context), decoded(drawn.context), atol=1e-6)  # pyright: ignore
        np.testing.assert_allclose(decoded(scene.teacher.theta), decoded(drawn.teacher.theta), atol=1e-6)  # pyright: ignore


def numbers(packed: PackedMap) -> list[np.ndarray]:
    return [decoded(packed.weights), decoded(packed.offset)]


def decoded(text: str) -> np.ndarray:
    return np.frombuffer(b64decode(text), "<f4")
