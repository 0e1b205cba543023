"""Writes the story as one file: models, teacher and page, to be opened in any browser, without a server."""

from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import recombine.page
from recombine import __version__
from recombine.errors import InputError
from recombine.files import replacing
from recombine.record.codec import encode
from recombine.story.pack import Story

HERE = Path(__file__).parent
SCRIPTS = (
    *("network.js", "inference.js", "teacher.js", "scene.js"),
    *("drawing.js", "graph.js", "scatter.js", "story_plots.js", "story.js"),
)
"""In the order in which they are loaded. The live page loads the same."""
STYLE = "story.css"
TONE = Path(recombine.page.__file__).with_name("tone.js")  # the switch between dark and light, which all pages share
MOST_BYTES = 2_000_000


def write_static_page(path: Path, story: Story) -> None:
    """Write the page, completely or not at all. Refuses models that would make it larger than 2 MB."""
    text = static_page(story)
    if len(text.encode()) > MOST_BYTES:
        size = f"{len(text.encode()) / 1e6:.1f} MB"
        raise InputError("page", size, f"at most {MOST_BYTES / 1e6:.0f} MB; export runs of smaller models")
    with replacing("page", path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def static_page(story: Story) -> str:
    """The text of the page. Only its own scripts run, and it loads nothing."""
    scripts = [TONE.read_text(encoding="utf-8"), *(_read(name) for name in (*SCRIPTS, "static_page.js"))]
    hashes = " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts)
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    data = encode(story).replace("<", "\\u003c")  # nothing in the data can end the script element
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Can a transformer recombine what it knows?</title>
<style>{_read(STYLE)}{_read("static_page.css")}</style>
</head>
<body>
<header>
<p><b>Recombine</b> {__version__} · the models run in this page; nothing is loaded or sent</p>
<button type="button" id="theme" aria-label="Change between dark and light">Dark</button>
</header>
<main id="story"><noscript><p>This page needs JavaScript.</p></noscript></main>
<script type="application/json" id="story-data">{data}</script>
{"".join(f"<script>{script}</script>" for script in scripts)}
</body>
</html>
"""


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
