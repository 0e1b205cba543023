"""Renders the results of a sweep as one HTML file, and writes its figures as files."""

from html import escape
from pathlib import Path

from recombine.figure.save import save_figure
from recombine.figure.sweep import sweep_figures
from recombine.files import make_directories
from recombine.jobs.grid import short_names
from recombine.page.document import document, write_document
from recombine.page.html import table
from recombine.study.sweep_results import SCORE_WORDS, SCORES, Ranked, SweepResults, mean_text, value_text, varied
from recombine.study.wording import percent

TOP = 25
PAGE = "index.html"


def write_sweep_report(results: SweepResults, out: Path) -> Path:
    """Write the page and its figures (PNG, SVG). Returns the path of the page."""
    make_directories(out)
    for name, chart in sweep_figures(results).items():
        save_figure(chart, *(out / f"{name}.{suffix}" for suffix in ("png", "svg")))
    write_document(out / PAGE, render(results))
    return out / PAGE


def render(results: SweepResults) -> str:
    charts = {
        tone: {name: chart.to_dict() for name, chart in sweep_figures(results, dark=tone == "dark").items()}
        for tone in ("light", "dark")
    }
    plots = "".join(
        f'<figure><div class="scroll" tabindex="0" role="region" aria-label="Figure: {name}">'
        f'<div class="plot" data-panel="{name}" role="group" '
        f'aria-label="Plot: {name}"></div></div></figure>'
        for name in charts["light"]
    )
    states = ", ".join(f"{count:,} {escape(state)}" for state, count in results.states.items())
    header = f"<p>Runs: {states}. A configuration is ranked when all its seeds are done.</p>"
    main = f"""<section aria-labelledby="winners"><h2 id="winners">Selected</h2>
<p class="caption">The paper selects by R² on held-out masks. The scores to select by and the reported scores are
measured on different episodes. For comparison, the table also has the best configuration in distribution.</p>
{_winners(results)}</section>
<section aria-labelledby="picture"><h2 id="picture">All configurations</h2>
<noscript><p>The plots need JavaScript; the tables do not.</p></noscript>
{plots}</section>
<section aria-labelledby="matters"><h2 id="matters">Importance of each field</h2>
<p class="caption">The share of the variance between configurations that a field explains by itself, and the mean R² at
each of its values.</p>
{_importance(results)}</section>
<section aria-labelledby="best"><h2 id="best">The best configurations</h2>
{_ranked(results, results.ranked[:TOP])}</section>"""
    title = f"A sweep of {len(results.ranked):,} configurations"
    return document(title, header, main, "charts", charts, "sweep.js")


def _winners(results: SweepResults) -> str:
    if not results.best_in_dist or results.selected_by != "select_ood":
        return _ranked(results, results.ranked[:1])
    names = ("by R² on held-out masks", "by R² in distribution")
    return _ranked(results, [results.ranked[0], results.best_in_dist], names)


def _ranked(results: SweepResults, ranked: list[Ranked], names: tuple[str, ...] = ()) -> str:
    fields = varied(results)
    scores = [name for name in SCORES if any(name in one.scores for one in ranked)]
    head = ["", *map(escape, short_names(fields).values()), *(SCORE_WORDS[name] for name in scores)]
    rows = [
        [
            names[i] if names else str(i + 1),
            *(escape(value_text(one.point[field])) for field in fields),
            *(mean_text(one.scores[name]) if name in one.scores else "–" for name in scores),
        ]
        for i, one in enumerate(ranked)
    ]
    return table(head, rows, "stack")


def _importance(results: SweepResults) -> str:
    rows = [
        [
            escape(one.field),
            percent(one.share),
            ", ".join(f"{escape(value_text(at.value))}: {at.mean:.3f}" for at in one.means),
        ]
        for one in results.importance
    ]
    if not rows:
        return "<p>No field makes a difference.</p>"
    return table(("field", "share of variance", "mean R² at each value"), rows, "stack")
