"""The pages in Firefox: the story as a file and from the server, and the explorer, without errors in the console."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from recombine.cli.main import main
from tests.page.firefox import FIREFOX, Firefox
from tests.serve.server import serving

pytestmark = [pytest.mark.slow, pytest.mark.skipif(FIREFOX is None, reason="needs firefox")]

STORY = "document.getElementById('story')"
SETTLED = f"{STORY}.dataset.settled === 'true'"
RIGHT = "\ue014"  # WebDriver's code of the arrow key


@pytest.fixture(scope="module")
def firefox() -> Iterator[Firefox]:
    with Firefox() as firefox:
        yield firefox


def test_the_story_as_a_file(firefox: Firefox, tmp_path: Path) -> None:
    page = tmp_path / "story.html"
    assert main(["export", "--page", str(page)]) == 0
    firefox.open(page.as_uri())
    firefox.wait_for(SETTLED)
    assert firefox.evaluate("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]") == [
        1280,
        720,
    ]
    for step in range(1, 4):
        firefox.press(RIGHT)
        firefox.wait_for(f"{STORY}.dataset.step === '{step}'")
    firefox.wait_for(f"Number({STORY}.querySelectorAll('.big')[1].textContent) > 0.99")
    assert firefox.evaluate(f"{STORY}.querySelectorAll('.point').length") == 128
    assert firefox.problems("story.html") == []


def test_the_live_pages(firefox: Firefox) -> None:
    with serving(None, "--demo") as server:
        firefox.open(server.url, ready="story")
        firefox.wait_for(SETTLED)
        firefox.open(f"{server.url}/#runs", ready="runs")
        firefox.wait_for("document.querySelector('#curves svg')")
        link = "run0=quick/transformer-connected%2B-seed0&run1=quick/hypertransformer-connected%2B-seed0&latent1=own-3"
        firefox.open(f"{server.url}/#explore&{link}", ready="explore")
        assert firefox.evaluate("document.querySelectorAll('#explore figure svg').length") == 4
        assert firefox.problems(server.url) == []
        firefox.evaluate("setTimeout(() => { throw new Error('seen') })")
        firefox.wait_for("true")
        assert len(firefox.problems(server.url)) == 1, "an error would be found"
