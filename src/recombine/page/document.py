"""A self-contained HTML document: it needs no network, no server and no other file."""

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
    """Write a document, completely or not at all."""
    with replacing("page", path) as temporary:
        # a run's path is shown, and need not be UTF-8
        temporary.write_text(text, encoding="utf-8", errors="replace", newline="\n")


def document(title: str, header: str, main: str, data_id: str, data: Any, script: str) -> str:
    """The text of a page. `header` and `main` are HTML, `data` is embedded as JSON, `script` names a file beside this.

    The title is escaped here; the caller escapes `header` and `main`.
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
    """Vega, Vega-Lite and vega-embed as one script. Bundling takes seconds, so the result is cached."""
    major, minor, *_ = alt.SCHEMA_VERSION.removeprefix("v").split(".")
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=f"{major}.{minor}")


def policy(scripts: Sequence[str]) -> str:
    """The Content-Security-Policy: only these scripts run, and nothing is loaded from elsewhere.

    eval is forbidden: Vega's interpreter evaluates its expressions (`ast` in report.js). Inline styles are allowed,
    because Vega's SVG and tooltips need them.
    """
    hashes = " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )
