"""The sections of the report page, as HTML. Every name from outside (models, supports, paths) is escaped here."""

import os
import shlex
from collections.abc import Sequence
from html import escape
from pathlib import Path, PurePosixPath

from recombine import paper
from recombine.config.model import CustomModelConfig
from recombine.config.task import VARIATIONS
from recombine.figure.contents import FIGURES
from recombine.figure.panel import Panel
from recombine.page.html import badge, html_with_band, table
from recombine.page.report_data import EXPLORE, EXPLORED_SPLITS
from recombine.storage.reader import StoredRun
from recombine.study.collect import Study, field_value, study_notes
from recombine.study.series import (
    model_scores,
    models,
    novel_scores,
    reference_novel,
    reference_scores,
    supports,
)
from recombine.study.summary import steps_of, without_novel
from recombine.study.verdict import JudgedReading, Part, Verdict
from recombine.study.wording import (
    COMPARISON_SIGNS,
    REFERENCE_WORDS,
    SPLIT_WORDS,
    VERDICT_MARKS,
    excluded,
    number,
    percent,
    short,
)


def verdict_section(verdicts: Sequence[Verdict]) -> str:
    rows = [
        (
            f'<span class="number">{verdict.number}</span> {escape(verdict.claim)}',
            escape(verdict.panel).replace("-", "–"),
            _statistics(verdict),
            badge(verdict.state, verdict.lean),
        )
        for verdict in verdicts
    ]
    if not rows:
        return "<p>No claim has been judged.</p>"
    return table(("Claim", "Panel", "Measured", "Verdict"), rows, "stack verdicts")


def _statistics(verdict: Verdict) -> str:
    """The statistics that decide a claim. Where none was measured, only why."""
    note = f"<small>{escape(verdict.note)}</small>"
    return f"{_parts(verdict.parts)}{note}{_others(verdict)}" if verdict.measured else note


def _parts(parts: Sequence[Part]) -> str:
    return f"<ul class='parts'>{''.join(map(_part, parts))}</ul>"


def _others(verdict: Verdict) -> str:
    """The other readings, folded: the first one gives the verdict."""
    readings = "".join(_other(words, reading) for words, reading in verdict.others)
    count = len(verdict.others)
    words = "1 other reading" if count == 1 else f"{count} other readings"
    return f"<details><summary>{words}</summary>{readings}</details>" if readings else ""


def _other(words: str, reading: JudgedReading) -> str:
    return f'<p class="reading">{escape(words)}: {badge(reading.state)}</p>{_parts(reading.parts)}'


def _part(part: Part) -> str:
    between = "" if part.low is None else f" [{number(part.low)}, {number(part.high)}]"
    found = "no data" if part.mean is None else f"<b>{number(part.mean)}</b>{between}"
    beyond = f"; {words}" if (words := excluded(part.comparison, part.bound, part.state)) else ""
    sign, icon = COMPARISON_SIGNS[part.comparison], VERDICT_MARKS[part.state]
    seeds = f' title="each seed: {", ".join(map(number, part.effects))}"' if len(part.effects) > 1 else ""
    return (
        f'<li{seeds}><span role="img" aria-label="{escape(part.state)}">{icon}</span> '
        f"{escape(part.statistic)}: {found}, "
        f'<span class="need">criterion {escape(sign)}{short(part.threshold)}{beyond}</span></li>'
    )


def figure_sections(study: Study) -> str:
    sections = []
    for name, figure in FIGURES.items():
        shown = figure.panels(study)
        if not any(panel.series for panel in shown):
            continue
        plots = "\n".join(plot(panel, (supports(study) or [""])[0]) for panel in shown)
        sections.append(
            f'<section aria-labelledby="{name}"><h2 id="{name}">{escape(figure.title)}</h2>'
            f'<p class="caption">{escape(figure.caption)}</p><div class="grid">{plots}</div></section>'
        )
    return "\n".join(sections)


def plot(panel: Panel, support: str) -> str:
    named = f'<span class="support">{escape(support)}</span>'
    lines = " · ".join(escape(line).replace("{support}", named) for line in panel.subtitle)
    return (
        f"<figure><figcaption><h3>{escape(panel.title)}</h3><p>{lines}</p></figcaption>"
        f'<div class="plot" data-panel="{panel.name}" role="group" aria-label="Plot: {escape(panel.title)}"></div>'
        "</figure>"
    )


def control_section(study: Study) -> str:
    """The controls for all plots: the support, the seeds, and the models (also the legend)."""
    boxes = "".join(
        f'<label class="model"><input type="checkbox" name="model" value="{i}" checked>'
        f'<span class="swatch" data-model="{i}"></span>{escape(name)}</label>'
        for i, name in enumerate(models(study))
    )
    options = "".join(f'<option value="{i}">{escape(name)}</option>' for i, name in enumerate(supports(study)))
    seeds = "".join(f'<option value="{seed}">seed {seed}</option>' for seed in sorted({run.seed for run in study.runs}))
    return (
        '<form id="controls" aria-label="What the plots show">'
        f"<fieldset><legend>Models</legend>{boxes}</fieldset>"
        f'<label>Trained on <select id="support">{options}</select></label>'
        f'<label>Seeds <select id="seed"><option value="all">all</option>{seeds}</select></label>'
        "</form>"
    )


def explore_section() -> str:
    splits = "".join(f'<option value="{split}">{escape(words)}</option>' for split, words in EXPLORED_SPLITS.items())
    return (
        '<section aria-labelledby="explore"><h2 id="explore">R² on any set of masks</h2>'
        '<p class="caption">R² pooled over the episodes of the chosen masks: 1 − Σ n·mse / Σ n·spread. '
        "A mask has n episodes; mse is its mean squared error, spread the mean squared error of the context's mean.</p>"
        '<div class="explore"><form id="picker" aria-label="Split and masks">'
        f'<label>Split <select id="split">{splits}</select></label>'
        '<fieldset id="mask-boxes"><legend>Masks</legend><p class="buttons"><button type="button" id="all">all</button>'
        '<button type="button" id="none">none</button></p><div id="boxes"></div></fieldset></form>'
        f'<div><div class="plot" data-panel="{EXPLORE}" role="group" aria-label="Plot: pooled R² over training"></div>'
        '<div class="scroll" tabindex="0" role="region" aria-label="Pooled R²">'
        "<table><caption>Pooled R² at the last snapshot</caption><thead><tr>"
        '<th scope="col">Model</th><th scope="col">R²</th><th scope="col">Interval</th><th scope="col">Seeds</th>'
        '<th scope="col">Step</th></tr></thead><tbody id="pooled" aria-live="polite"></tbody></table></div></div>'
        "</div></section>"
    )


def score_section(study: Study) -> str:
    """A table of models and references for each support."""
    parts = []
    for support in supports(study):
        runs = [run for run in study.runs if run.support == support]
        rows = [
            (
                f"<b>{escape(model)}</b>",
                *map(html_with_band, (*model_scores(runs, model, SPLIT_WORDS), novel_scores(runs, model))),
                steps_of(runs, model),
            )
            for model in models(study)
        ]
        rows += [
            (words, *map(html_with_band, (*reference_scores(runs, name, SPLIT_WORDS), reference_novel(runs, name))), "")
            for name, words in REFERENCE_WORDS.items()
        ]
        rows = [row for row in rows if set(row[1:-1]) != {"–"}]
        if rows:
            head, rows = without_novel(("R²", *SPLIT_WORDS.values(), "novel part", "steps × seeds"), rows)
            parts.append(f"<h3>Trained on {escape(support)}</h3>{table(head, rows, 'scores')}")
    return "".join(parts) or "<p>No run has been measured yet.</p>"


def run_section(study: Study, directory: Path) -> str:
    rows = []
    for run in study.runs:
        step, total = (run.num_steps if run.finished else run.status.step), run.num_steps
        unfinished = "" if run.finished else f" <small>{_unfinished(run, step, total)}</small>"
        rows.append(
            (
                escape(run.model),
                escape(run.support),
                str(run.seed),
                f'<span class="state {"good" if run.finished else "open"}">{escape(run.state)}</span>{unfinished}',
                f"{step:,} of {total:,}",
                f"<code>{escape(relative(run.path, directory))}</code>",
            )
        )
    if not rows:
        return "<p>No run yet.</p>"
    notes = "".join(
        f"<li>{escape(text)}</li>" for text in study_notes(study, lambda run: relative(run.path, directory))
    )
    listed = f'<ul class="caption">{notes}</ul>' if notes else ""
    return table(("Model", "Support", "Seed", "State", "Steps", "Directory"), rows, "runs") + listed


def _unfinished(run: StoredRun, step: int, total: int) -> str:
    if not run.rows:
        return "nothing measured yet"
    share = percent(step / total) if total else "?"
    return f"{share} of its steps: the plots show it up to step {run.rows[-1].step:,}"


def again_section(study: Study, directory: Path) -> str:
    """The commands that reproduce the page and a run, to be run from the directory of the page."""
    paths = [relative(run.path, directory) for run in study.runs]
    parents = dict.fromkeys(PurePosixPath(path).parent.as_posix() for path in paths)
    report = " ".join(["recombine report", *map(shlex.quote, parents)])
    lines = [f"<p>To make the figures and this page again:</p><pre><code>{escape(report)}</code></pre>"]
    if paths:
        train = _train_again(study.runs[0], f"{paths[0]}/config.toml")
        lines.append(f"<p>To train one of the runs again:</p><pre><code>{escape(train)}</code></pre>")
    return "".join(lines) + "<p>Paths are relative to the directory of this page.</p>"


def _train_again(run: StoredRun, config: str) -> str:
    """The command that trains a run again, with the flags, threads and devices that affect its bits."""
    made, model = run.made, run.config.model
    words = [f"XLA_FLAGS={shlex.quote(made.xla_flags)}"] if made and made.xla_flags else []
    words += ["recombine train", "--config", shlex.quote(config), "--out again"]
    if isinstance(model, CustomModelConfig):
        words.append(f"--model {shlex.quote(model.kind)}")
    if made:
        words.append(f"--threads {made.threads}")
    if made and made.devices > 1:
        words.append(f"--devices {made.devices}")
    return " ".join(words)


def relative(path: Path, directory: Path) -> str:
    """A path relative to the page, so that the page reveals nothing about the machine."""
    return Path(os.path.relpath(path, directory)).as_posix()


def smaller_than_paper(study: Study) -> bool:
    """Whether some run has a smaller task than the paper's, or fewer steps."""
    return any(
        run.config.task.input_dim < paper.INPUT_DIM
        or run.config.task.hidden_dim < paper.HIDDEN_DIM
        or run.num_steps < paper.NUM_STEPS
        for run in study.runs
    )


def settings(study: Study) -> str:
    """The settings that the runs share, in one line."""
    found = {}
    for words, field in (
        ("input size", "task.input_dim"),
        ("hidden size", "task.hidden_dim"),
        ("episode length", "task.episode_length"),
        ("episodes per measurement", "measure.episodes"),
    ):
        values = {str(field_value(run.config, field)) for run in study.runs}
        found[words] = ", ".join(f"{int(value):,}" for value in sorted(values, key=int))
    for name in VARIATIONS:
        values = {str(run.config.task.variation[name]) for run in study.runs if name in run.config.task.variation}
        if values:
            found[name.replace("_", " ")] = ", ".join(sorted(values))
    return " · ".join(f"{words} {escape(value)}" for words, value in found.items())
