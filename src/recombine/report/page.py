"""The report as one HTML file that needs nothing else: no network, no server, no other file."""

from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import altair as alt
import vl_convert

from recombine.files import replacing
from recombine.report.page_data import embed_json, page_data
from recombine.report.page_sections import (
    again_section,
    control_section,
    explore_section,
    figure_sections,
    run_section,
    score_section,
    settings,
    verdict_section,
)
from recombine.report.series import drawable

if TYPE_CHECKING:
    from recombine.report.collect import Study
    from recombine.report.verdict import Verdict

TITLE = "Can an in-context learner recombine what it knows?"
QUESTION = (
    "A transformer, and a transformer with a hypernetwork bottleneck, learn tasks made of modules in-context: "
    "do they solve tasks that combine the modules in ways they never trained on?"
)


def write_page(study: "Study", verdicts: Sequence["Verdict"], path: Path, title: str = TITLE) -> None:
    """Write the report to `path`, whole or not at all. The same study gives the same bytes."""
    text = render_page(study, verdicts, path.parent, title)
    with replacing("page", path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


@cache
def vega() -> str:
    """Vega, Vega-Lite and their embedding, as one script. Putting it together takes seconds: once is enough."""
    major, minor, *_ = alt.SCHEMA_VERSION.removeprefix("v").split(".")
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=f"{major}.{minor}")


def render_page(study: "Study", verdicts: Sequence["Verdict"], directory: Path, title: str = TITLE) -> str:
    """The page's text; `directory` is where it will be, and the runs' paths are shown as seen from there."""
    study = drawable(study)
    here = Path(__file__)
    style = here.with_name("page.css").read_text(encoding="utf-8")
    scripts = [
        vega(),
        here.with_name("page.js").read_text(encoding="utf-8"),
    ]
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
<p>{QUESTION}</p>
<p class="caption">{settings(study)}</p>
</header>
<main>
<section aria-labelledby="verdicts"><h2 id="verdicts">The claims</h2>
{verdict_section(verdicts)}</section>
<noscript><p>The plots need JavaScript; the tables do not.</p></noscript>
{control_section(study)}
{figure_sections(study)}
{explore_section()}
<section aria-labelledby="scores"><h2 id="scores">Models and references</h2>
<p class="caption">R² at the last snapshot, mean over seeds.
A model's score means something only between the references.</p>
{score_section(study)}</section>
<section aria-labelledby="runs"><h2 id="runs">Runs</h2>
{run_section(study, directory)}</section>
<section aria-labelledby="again"><h2 id="again">Make this again</h2>
{again_section(study, directory)}</section>
</main>
<script type="application/json" id="study">{embed_json(page_data(study))}</script>
{"".join(f"<script>{script}</script>" for script in scripts)}
</body>
</html>
"""


def policy(scripts: Sequence[str]) -> str:
    """Only these very scripts, and nothing from anywhere else.

    No eval: Vega runs its expressions through its interpreter (`ast` in page.js). Styles are inline because Vega's SVG
    and tooltips set them.
    """
    hashes = " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )
