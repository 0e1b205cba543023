"""Fixtures for the page in a real browser: a directory of runs, a server and a browser, shared by all its tests."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomli_w

from recombine.record.codec import encode
from recombine.record.run_state import Status
from recombine.record.sweep import SweepLine
from recombine.storage.source import SELECTION
from tests.page.browser import Browser
from tests.serve.browsing import EVIL
from tests.serve.server import Address, copy_demo, copy_demo_run, selection, serving


@pytest.fixture(scope="package")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of the demo, and one in which every text is hostile."""
    place = tmp_path_factory.mktemp("place") / "runs"
    copy_demo("quick", place / "demo")
    evil = place / f"evil {EVIL.replace('/', '_')}"
    copy_demo_run("quick/transformer-connected+-seed0", evil)
    config = tomllib.loads((evil / "config.toml").read_text())
    config["task"]["support"] = {"name": EVIL, "masks": ["110000", "011111"], "held_out": ["101000"]}
    (evil / "config.toml").write_text(tomli_w.dumps(config))
    rows = [json.loads(line) for line in (evil / "metrics.jsonl").read_text().splitlines()]
    rows[-1] |= {EVIL: EVIL, "probe": rows[-1]["probe"] | {EVIL: [1]}}
    rows[-2] |= {"probe": EVIL}  # not a row that can be read
    (evil / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (evil / "status.json").write_text(encode(Status("failed", 3, 10_000, error=EVIL)))
    swept = place / f"swept {EVIL.replace('/', '_')}"
    copy_demo_run("quick/transformer-connected+-seed0", swept / "one")
    line = SweepLine("one", EVIL, 0, {EVIL: EVIL}, 10_000)
    (swept / "sweep.jsonl").write_text(f"{encode(line)}\n")
    (swept / "one" / SELECTION).write_text(selection(10_000, select=0.5, report=0.5))
    return place


@pytest.fixture(scope="package")
def server(place: Path) -> Iterator[Address]:
    with serving(place) as address:
        yield address


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser
