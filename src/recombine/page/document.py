"""An HTML document that needs nothing else: no network, no server, no other file."""

from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from recombine.files import replacing
from recombine.page.html import embed_json


def write_document(path: Path, text: str) -> None:
    """Whole or not at all."""
    with replacing("page", path) as temporary:
        # a run's path is shown, and need not be UTF-8
        temporary.write_text(text, encoding="utf-8", errors="replace", newline="\n")


def document(title: str, header: str, main: str, data_id: str, data: Any, script: str) -> str:
    """The text of a page: its header and main part as HTML, its data as JSON, and the file of its script.

    The title is escaped here, the parts by whoever makes them.
    """
    here = Path(__file__)
    style = here.with_name("page.css").read_text(encoding="utf-8")
    scripts = [vega(), *(here.with_name(name).read_text(encoding="utf-8") for name in ("tone.js", script))]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy(scripts)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<header>
<div><p class="brand">Recombine</p>
<button type="button" id="theme" aria-label="Change between dark and light">Dark</button></div>
<h1>{escape(title)}</h1>
{header}
</header>
<main>
{main}
</main>
<script type="application/json" id="{data_id}">{embed_json(data)}</script>
{"".join(f"<script>{script}</script>" for script in scripts)}
</body>
</html>
"""


@cache
def vega() -> str:
    """Vega, Vega-Lite and their embedding, as one script. Putting it together takes seconds: once is enough."""
    major, minor, *_ = alt.SCHEMA_VERSION.removeprefix("v").split(".")
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=f"{major}.{minor}")


def policy(scripts: Sequence[str]) -> str:
    """Only these very scripts, and nothing from anywhere else.

    No eval: Vega runs its expressions through its interpreter (`ast` in report.js). Styles are inline because
    Vega's SVG and tooltips set them.
    """
    hashes = " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )
