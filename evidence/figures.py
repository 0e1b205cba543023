"""The figures of the docs, from the runs in this directory and from nothing else."""

from collections.abc import Callable
from typing import Any

import altair as alt
from records import HERE, MAIN, H, T, chosen, study, sweep

from recombine.report import theme
from recombine.report.figures import draw_figure

WIDTH, HEIGHT = 300, 220


def length() -> alt.ConcatChart:
    """R² over N, of both models and of ridge, in distribution and on held-out masks."""
    runs = sweep("length")
    rows: list[dict[str, Any]] = []
    lengths = sorted({run.config["task"]["episode_length"] for run in runs})
    for n in lengths:
        for split in ("in_dist", "ood"):
            for model in (T, H):
                found = chosen(runs, model, task__episode_length=n)
                rows += [{"N": n, "split": split, "name": model, "R²": run.rows[-1][split]["r2"]} for run in found]
            known = next((run.references for run in runs if run.config["task"]["episode_length"] == n), None)
            if known:
                rows.append({"N": n, "split": split, "name": "ridge", "R²": known["ridge"][split]["r2"]})
    names = [T, H, "ridge"]
    color = alt.Color("name:N", scale=alt.Scale(domain=names, range=[*theme.colors([T, H]), theme.LIGHT["reference"]]))
    shape = alt.Shape("name:N", scale=alt.Scale(domain=names))
    x = alt.X(
        "N:Q",
        title="N, examples in an episode",
        scale=alt.Scale(type="log", base=2),
        axis=alt.Axis(grid=False, values=lengths, format="d"),
    )
    y = alt.Y("R²:Q", scale=alt.Scale(domain=[0, 1]), title="R²")
    panels = []
    for split, title in (("in_dist", "In distribution"), ("ood", "Held-out masks")):
        base = alt.Chart(alt.Data(values=[row for row in rows if row["split"] == split])).encode(x=x, y=y, color=color)
        drawn = base.mark_line(strokeWidth=2) + base.mark_point(size=70, filled=True, opacity=1).encode(shape=shape)
        panels.append(drawn.properties(width=WIDTH, height=HEIGHT, title=title))
    title = alt.TitleParams("How long is an episode?", subtitle="10,000 steps, one seed, sizes of the paper", offset=14)
    whole = alt.concat(*panels, columns=2, spacing=30).properties(padding=14, title=title)
    return whole.configure(**theme.config([T, H], size=14))


FIGURES: dict[str, Callable[[], alt.ConcatChart]] = {
    "results_quick.png": lambda: draw_figure(study("quick"), "results", MAIN, columns=3),
    "interventions_quick.png": lambda: draw_figure(study("quick"), "interventions", MAIN),
}
if (HERE / "length").is_dir():
    FIGURES["length.png"] = length
if (HERE / "paper").is_dir():
    FIGURES["results_paper.png"] = lambda: draw_figure(study("paper"), "results", MAIN, columns=3)
