"""Composes figures from their panels: one chart for each figure of a study, and its PNG and SVG files."""

from collections import Counter
from pathlib import Path

import altair as alt

from recombine.figure import theme
from recombine.figure.chart import Rows, chart, shown_models, tables
from recombine.figure.contents import FIGURES
from recombine.figure.panel import Panel
from recombine.figure.save import save_figure
from recombine.study.collect import Study
from recombine.study.series import models, supports, with_drawable_names

WIDTH, HEIGHT, ROW = 235, 165, 24  # pixels: the width and height of a panel, and the height of a row
TEXT = 14


def figures(study: Study) -> dict[str, alt.ConcatChart]:
    """Every figure for which the study has data, by name."""
    main = (supports(study) or [""])[0]
    return {
        name: draw_figure(study, name)
        for name, figure in FIGURES.items()
        if any(_has_data(study, panel, main) for panel in figure.panels(study))
    }


def write_figures(study: Study, directory: Path) -> list[Path]:
    """Write each figure as PNG and SVG. Returns the paths, in order."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in figures(study).items():
        files = [directory / f"{name}.{suffix}" for suffix in ("png", "svg")]
        save_figure(figure, *files)
        paths += files
    return paths


def _has_data(study: Study, panel: Panel, support: str) -> bool:
    return any(not panel.by_support or study.runs[one.run].support == support for one in panel.series)


def draw_figure(study: Study, name: str, support: str | None = None, columns: int = 2) -> alt.ConcatChart:
    """Draw one of `FIGURES`. `support` is that of panels A to C; the default is Connected+ if the study has it."""
    figure, study = FIGURES[name], with_drawable_names(study)
    chosen = support if support is not None else (supports(study) or [""])[0]
    data: dict[str, Rows] = {}
    shown = figure.panels(study)
    lines = max((len(panel.subtitle) for panel in shown), default=0)
    legend = shown_models(study, shown)
    drawn, below = [], []
    for panel in shown:
        rows = tables(study, panel, lambda run, panel=panel: not panel.by_support or run.support == chosen)
        data |= rows
        means = rows[f"{panel.name}_means"]
        words = [line.format(support=chosen) for line in panel.subtitle]
        title = alt.TitleParams(panel.title, subtitle=words + [""] * (lines - len(words)), limit=WIDTH + 90)
        height = ROW * max(len({row["x"] for row in means}), 3) if panel.rows else HEIGHT
        width = 0.75 * WIDTH if panel.name == "compared_both" else WIDTH
        drawn.append(chart(study, panel, legend).properties(width=width, height=height, title=title))
        below += _below(panel, means)
    if name == "results":
        drawn.append(_reading(study, below))
    whole = (
        alt.concat(*drawn, columns=columns, spacing={"row": 26, "column": 30})
        .resolve_scale(color="shared", strokeDash="independent", yOffset="independent")
        .properties(
            padding=14, title=alt.TitleParams(figure.title, subtitle=_settings(study), fontSize=TEXT + 4, offset=14)
        )
        .configure(**theme.config(models(study), size=TEXT))
    )
    whole["datasets"] = data  # set last, because each method above copies the chart with its data
    return whole


def _settings(study: Study) -> list[str]:
    """A line with the sizes and the number of steps, if all runs share them."""
    tasks = [run.config.task for run in study.runs]
    sizes = {task.described for task in tasks}
    steps = {run.num_steps for run in study.runs}
    if len(sizes) != 1 or len(steps) != 1:
        return []
    return [f"{steps.pop():,} steps, {sizes.pop()}"]


def _below(panel: Panel, means: Rows) -> list[str]:
    """A text for each curve that ends below the visible range of the panel."""
    last = {(row["model"], row["name"]): row for row in means if row["mean"] is not None}
    letter = panel.title.split("\u2002")[0]
    return [
        f"{letter}, {' '.join(filter(None, key))}: {row['mean']:.2f}".replace("-", "−")
        for key, row in last.items()
        if not panel.log and row["mean"] < panel.domain[0]
    ]


def _reading(study: Study, below: list[str]) -> alt.Chart:
    """The explanation of the results figure, drawn in place of a last panel."""
    counts = Counter((run.model, run.support) for run in study.runs if run.rows).values()
    fewest, most = min(counts, default=0), max(counts, default=0)
    told = f"{most}" if fewest == most else f"{fewest} to {most}"
    lines = [f"Lines: mean over {told} seeds" if most > 1 else "Lines: one seed"]
    lines += ["Bands: 95 % interval of the mean"] if most > 2 else []
    lines += ["Bands: range of the 2 seeds"] if most == 2 else ["(range where there are 2)"] if 2 in counts else []
    lines += ["(of solid lines)"] if most > 1 else []
    lines += ["Grey: references (mean over seeds;", "in D over both supports)", "Beyond the view: at its edge"]
    unfinished = sum(not run.finished for run in study.runs)
    lines += [f"{unfinished} of {len(study.runs)} runs not finished"] if unfinished else []
    lines += ["", "Ends below the view:", *below] if below else []
    rows = [{"text": line, "row": i} for i, line in enumerate(lines)]
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_text(style="note", align="left", baseline="top")
        .encode(
            x=alt.value(0),
            y=alt.Y("row:Q", axis=None, scale=alt.Scale(domain=[0, HEIGHT / (TEXT + 6)], reverse=True, nice=False)),
            text="text:N",
        )
        .properties(width=WIDTH, height=HEIGHT)
    )
