"""The report page as text: reproducible bytes, only its own scripts, every name escaped."""

import json
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.page.html import embed_json
from recombine.page.report import SMALLER
from recombine.page.report_sections import smaller_than_paper
from recombine.study.collect import Study
from recombine.study.series import drawable
from recombine.study.wording import mask_name, number, short
from tests.page.browser import page
from tests.study.studies import half_study, hostile_study, make_run


class Reader(HTMLParser):
    """The parts of a page that the tests look at."""

    def __init__(self, text: str):
        super().__init__()
        self.inside, self.scripts, self.policy, self.text, self.headings = "", [], "", "", []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "meta" and given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"] or ""
        if tag == "script":
            self.scripts.append((given.get("type"), ""))
        if tag not in ("meta", "input"):
            self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif self.inside != "style":
            self.text += data


@pytest.mark.slow
def test_the_same_study_gives_the_same_bytes_anywhere(tmp_path: Path) -> None:
    """The page of the same runs in another directory has the same bytes."""
    texts = []
    for place in (tmp_path / "a", tmp_path / "somewhere" / "else"):
        runs = tuple(replace(run, path=place / run.path) for run in half_study().runs)
        texts.append(page(Study(runs), place / "report" / "report.html"))
    assert texts[0] == texts[1]
    assert "../runs/transformer-connected+-0" in texts[0]
    assert str(tmp_path) not in texts[0]
    first = half_study().runs[0]
    changed = replace(first, config=replace(first.config, seed=7))
    assert page(Study((changed, half_study().runs[1])), tmp_path / "b" / "report.html") != texts[0]


def test_names_are_text(tmp_path: Path) -> None:
    text = page(hostile_study(), tmp_path / "report.html")
    assert "<script>document" not in text
    reader = Reader(text)
    assert not any("\u2028" in body for _, body in reader.scripts)
    assert len(reader.scripts) == 4, "the data, what draws, dark or light, the page"
    assert "</script><script>document.title='owned'</script>" in reader.text  # it is there, as what it says
    data = json.loads(next(body for kind, body in reader.scripts if kind == "application/json"))
    assert data["models"] == ["Bottleneck"]
    assert data["supports"] == [drawable(hostile_study().runs[0].support)]


@given(st.recursive(st.text() | st.floats(allow_nan=False, allow_infinity=False) | st.none(), st.lists, max_leaves=5))
def test_embedded_json_is_the_same_and_cannot_end_its_element(data: Any) -> None:
    text = embed_json(data)
    assert json.loads(text) == data
    assert not set("<>&\u2028\u2029") & set(text)


def test_only_its_own_scripts_run(tmp_path: Path) -> None:
    reader = Reader(page(half_study(), tmp_path / "report.html"))
    rules = dict(rule.strip().split(" ", 1) for rule in reader.policy.split(";"))
    assert rules["default-src"] == rules["connect-src"] == "'none'"
    run = [body for kind, body in reader.scripts if kind is None]
    assert rules["script-src"].split() == [f"'sha256-{b64encode(sha256(b.encode()).digest()).decode()}'" for b in run]


def test_the_words(tmp_path: Path) -> None:
    text = Reader(page(half_study(), tmp_path / "report.html")).text
    assert "0.220 [0.170, 0.270]" in text
    assert "criterion ≥ 0.1" in text
    assert "✓ holds" in text.replace("\n", "")
    assert "? not enough data" in text
    assert "50 % of its steps: the plots show it up to step 2,500" in text
    assert "nothing measured yet" in text
    assert "recombine report" in text
    assert "Python" not in text
    assert Reader(page(Study(()), tmp_path / "empty.html")).text.count("No run") == 2


def test_numbers() -> None:
    assert [number(x) for x in (0.5, -2.4837, 0, None, 3.21e-7)] == ["0.500", "−2.484", "0.000", "–", "3.2·10⁻⁷"]
    assert [short(x) for x in (0.5, -2.0, 1e-5)] == ["0.5", "−2", "1·10⁻⁵"]


def test_masks_are_named_after_their_modules() -> None:
    assert mask_name("100100") == "θ₁+θ₄"
    assert mask_name("000000000010") == "θ₁₁"
    assert mask_name("000") == "000"
    assert mask_name("block 1") == "block 1"


def test_how_to_make_a_run_again(tmp_path: Path) -> None:
    """The printed command has the threads that affect the bits, and names the custom class so that it is imported."""
    run = make_run("Bottleneck", "connected+", 0, path="runs/one")
    text = Reader(page(Study((run,)), tmp_path / "one.html")).text
    assert "/runs/one/config.toml --out again --model mine:Bottleneck --threads 1Paths" in text
    flagged = replace(run, made=msgspec.structs.replace(run.made, xla_flags="--a=0 --b=1"))
    text = Reader(page(Study((flagged,)), tmp_path / "flagged.html")).text
    assert "XLA_FLAGS='--a=0 --b=1' recombine train --config" in text


@pytest.mark.parametrize(("steps", "smaller"), [(5_000, True), (100_000, False)])
def test_only_runs_of_the_papers_size_speak_about_the_paper(steps: int, smaller: bool, tmp_path: Path) -> None:
    study = Study((make_run("transformer", "connected+", 0, steps=steps),))
    assert smaller_than_paper(study) is smaller
    assert (SMALLER in page(study, tmp_path / "page.html")) is smaller
