"""`python -m tests.serve.pictures [DIRECTORY]` (make pictures): screenshots of the page for the docs."""

import sys
from pathlib import Path
from urllib.parse import urlencode

from recombine.figure.save import compressed
from tests.page.browser import Browser
from tests.serve.server import serving

ROOT = Path(__file__).parents[2]
LOADING = 180.0
PHONE = 844  # pixels of its height
SCREEN = 720
MODELS = ("transformer", "hypertransformer")
RUNS = [("study", "quick")]
PAIR = [f"paper/{model}-connected+-seed0" for model in MODELS]
TASK = [("run0", PAIR[0]), ("run1", PAIR[1]), ("weights", "1,0,0,0.6,0,0"), ("length", "31")]
PICTURES = {  # directory (None for the demo), view, what it shows, width, scheme
    "serve_runs.png": (ROOT / "evidence", "runs", RUNS, 1280, "light"),
    "serve_phone_runs.png": (ROOT / "evidence", "runs", RUNS, 390, "light"),
    "serve_explore.png": (None, "explore", TASK, 1280, "light"),
    "serve_explore_true.png": (None, "explore", [*TASK, ("latent1", "true")], 1280, "light"),
    "story_2.png": (None, "story", [("step", "2")], 1280, "light"),
    "story_2_new_part.png": (None, "story", [("step", "2"), ("show", "novel")], 1280, "light"),
    "story_3.png": (None, "story", [("step", "3"), ("answers", "true")], 1280, "dark"),
    "story_4.png": (None, "story", [("step", "4"), ("answers", "explicit"), ("steps", "3")], 1280, "light"),
    "serve_phone_explore.png": (None, "explore", TASK, 390, "dark"),
}
DRAWN = {"story": (), "runs": ("curves",), "explore": ("scatter", "slice", "latent", "attention")}


def main(out: Path) -> None:
    for directory in dict.fromkeys(picture[0] for picture in PICTURES.values()):
        with serving(directory, *([] if directory else ["--demo"])) as server, Browser() as browser:
            for name, (where, view, shown, width, scheme) in PICTURES.items():
                if where != directory:
                    continue
                link = f"{server.url}/#{view}&{urlencode(shown)}"
                height = SCREEN if view == "story" else PHONE
                browser.open(link, width=width, height=height, scheme=scheme, ready=view, patience=LOADING)
                for plot in DRAWN[view]:
                    browser.wait_for(f"document.querySelector('#{plot} svg') !== null", LOADING)
                if view == "story":
                    browser.wait_for("document.getElementById('story').dataset.settled === 'true'", LOADING)
                if view == "runs":
                    browser.wait_for("document.querySelectorAll('#claims li').length === 7", LOADING)
                whole = view == "runs" and width > 600  # the others show what fits on the screen
                browser.screenshot(out / name, height=None if whole else height)
                (out / name).write_bytes(compressed((out / name).read_bytes()))
                assert browser.problems == [], browser.problems


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/images")
