"""A sweep's page: one HTML file that needs nothing else, beside the figures as files."""

from html import escape
from pathlib import Path

from recombine.files import make_directories, replacing
from recombine.report.drawing import save_figure
from recombine.report.page import policy, vega
from recombine.report.page_data import embed_json
from recombine.report.page_sections import table
from recombine.report.sweep_figures import sweep_figures
from recombine.report.sweep_results import SCORES, Ranked, SweepResults
from recombine.report.sweep_tables import WORDS, interval, value_text, varied

TOP = 25
PAGE = "index.html"


def write_sweep_report(results: SweepResults, out: Path) -> Path:
    """The page and its figures (PNG, SVG); the page's path."""
    make_directories(out)
    for name, chart in sweep_figures(results).items():
        for suffix in ("png", "svg"):
            save_figure(chart, out / f"{name}.{suffix}")
    with replacing("page", out / PAGE) as temporary:
        temporary.write_text(render(results), encoding="utf-8", newline="\n")
    return out / PAGE


def render(results: SweepResults) -> str:
    here = Path(__file__)
    style = here.with_name("page.css").read_text(encoding="utf-8")
    scripts = [vega(), here.with_name("sweep_page.js").read_text(encoding="utf-8")]
    charts = {
        tone: {name: chart.to_dict() for name, chart in sweep_figures(results, dark=tone == "dark").items()}
        for tone in ("light", "dark")
    }
    plots = "".join(
        f'<figure><div class="scroll" tabindex="0"><div class="plot" data-panel="{name}" role="group" '
        f'aria-label="Plot: {name}"></div></div></figure>'
        for name in charts["light"]
    )
    states = ", ".join(f"{count:,} {escape(state)}" for state, count in results.states.items())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy(scripts)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>A sweep</title>
<style>{style}</style>
</head>
<body>
<header>
<div><p class="brand">Recombine</p>
<button type="button" id="theme" aria-label="Change between dark and light">Dark</button></div>
<h1>A sweep of {len(results.ranked):,} configurations</h1>
<p>Runs: {states}. A configuration is ranked when all its seeds are done.</p>
</header>
<main>
<section aria-labelledby="winners"><h2 id="winners">Selected</h2>
<p class="caption">The paper selects by the R² on held-out masks. Selecting uses episodes of its own; what is reported
is measured on others. Beside it, what selecting in distribution would have chosen.</p>
{_winners(results)}</section>
<section aria-labelledby="picture"><h2 id="picture">All configurations</h2>
<noscript><p>The plots need JavaScript; the tables do not.</p></noscript>
{plots}</section>
<section aria-labelledby="matters"><h2 id="matters">What matters</h2>
<p class="caption">The share of the variance between configurations that a field explains by itself, and the mean R² at
each of its values.</p>
{_importance(results)}</section>
<section aria-labelledby="best"><h2 id="best">The best configurations</h2>
{_ranked(results, results.ranked[:TOP])}</section>
</main>
<script type="application/json" id="charts">{embed_json(charts)}</script>
{"".join(f"<script>{script}</script>" for script in scripts)}
</body>
</html>
"""


def _winners(results: SweepResults) -> str:
    if not results.best_in_dist or results.selected_by != "select_ood":
        return _ranked(results, results.ranked[:1])
    names = ("by R² on held-out masks", "by R² in distribution")
    return _ranked(results, [results.ranked[0], results.best_in_dist], names)


def _ranked(results: SweepResults, ranked: list[Ranked], names: tuple[str, ...] = ()) -> str:
    fields = varied(results)
    scores = [name for name in SCORES if any(name in one.scores for one in ranked)]
    head = ["", *(escape(field.rpartition(".")[2]) for field in fields), *(WORDS[name] for name in scores)]
    rows = [
        [
            names[i] if names else str(i + 1),
            *(escape(value_text(one.point[field])) for field in fields),
            *(interval(one.scores[name]) if name in one.scores else "–" for name in scores),
        ]
        for i, one in enumerate(ranked)
    ]
    return table(head, rows, "stack")


def _importance(results: SweepResults) -> str:
    rows = [
        [
            escape(one.field),
            f"{one.share:.0%}".replace("%", " %"),
            ", ".join(f"{escape(value_text(value))}: {mean:.3f}" for value, mean in one.means),
        ]
        for one in results.importance
    ]
    return table(("field", "share of variance", "mean R² at each value"), rows, "stack") if rows else "<p>Nothing.</p>"
