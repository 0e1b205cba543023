"""Renders the report of a study as one HTML file."""

from collections.abc import Sequence
from pathlib import Path

from recombine import paper
from recombine.page.document import document, write_document
from recombine.page.report_data import page_data
from recombine.page.report_sections import (
    again_section,
    control_section,
    explore_section,
    figure_sections,
    run_section,
    score_section,
    settings,
    smaller_than_paper,
    verdict_section,
)
from recombine.study.collect import Study
from recombine.study.series import with_drawable_names
from recombine.study.verdict import Verdict

TITLE = "Can an in-context learner recombine what it knows?"
QUESTION = (
    "A transformer, and a transformer with a hypernetwork bottleneck, learn tasks made of modules in-context: "
    "do they solve tasks that combine the modules in ways they never trained on?"
)

SMALLER = f"""
<p class="caption">Smaller or shorter than the paper's runs (input size {paper.INPUT_DIM},
hidden size {paper.HIDDEN_DIM}, {paper.NUM_STEPS:,} steps):
the verdicts are about these runs and are no verdict on the paper.</p>"""


def write_page(study: Study, verdicts: Sequence[Verdict], path: Path, title: str = TITLE) -> None:
    """Write the report to `path`, completely or not at all. The same study gives the same bytes."""
    write_document(path, render_page(study, verdicts, path.parent, title))


def render_page(study: Study, verdicts: Sequence[Verdict], directory: Path, title: str = TITLE) -> str:
    """The page's text. `directory` is where it will be stored; the paths of runs are shown relative to it."""
    study = with_drawable_names(study)
    header = f"""<p>{QUESTION}</p>
<p class="caption">{settings(study)}</p>{SMALLER if smaller_than_paper(study) else ""}"""
    main = f"""<section aria-labelledby="verdicts"><h2 id="verdicts">The claims</h2>
{verdict_section(verdicts)}</section>
<noscript><p>The plots need JavaScript; the tables do not.</p></noscript>
{control_section(study)}
{figure_sections(study)}
{explore_section()}
<section aria-labelledby="scores"><h2 id="scores">Models and references</h2>
<p class="caption">R² at the last snapshot, mean over seeds.
Compare a model's score with those of the references.</p>
{score_section(study)}</section>
<section aria-labelledby="runs"><h2 id="runs">Runs</h2>
{run_section(study, directory)}</section>
<section aria-labelledby="again"><h2 id="again">Reproduce this page</h2>
{again_section(study, directory)}</section>"""
    return document(title, header, main, "study", page_data(study), "report.js")
