"""The figures of the docs, made only from the runs in evidence/."""

from collections.abc import Callable
from typing import Any

import altair as alt
from records import MAIN, H, T, chosen, final_r2, study, sweep
from studies import true_latent_r2

from recombine.figure import theme
from recombine.figure.compose import draw_figure
from recombine.study.series import reference_scores
from recombine.study.wording import REFERENCE_WORDS

WIDTH, HEIGHT = 300, 220


def length() -> alt.ConcatChart:
    """R² of both models and of ridge by episode length N, in distribution and on held-out masks."""
    runs = sweep("length")
    rows: list[dict[str, Any]] = []
    lengths = sorted({run.config.task.episode_length for run in runs})
    for n in lengths:
        for split in ("in_dist", "ood"):
            for model in (T, H):
                found = chosen(runs, model, task__episode_length=n)
                rows += [{"N": n, "split": split, "name": model, "R²": final_r2(run, split)} for run in found]
            known = next((run.references for run in runs if run.config.task.episode_length == n), None)
            if known:
                rows.append({"N": n, "split": split, "name": "ridge", "R²": known["ridge"].r2(split)})
    names = [T, H, "ridge"]
    color = alt.Color("name:N", scale=alt.Scale(domain=names, range=[*theme.colors([T, H]), theme.LIGHT["reference"]]))
    shape = alt.Shape("name:N", scale=alt.Scale(domain=names))
    x = alt.X(
        "N:Q",
        title="N, length of an episode with its query",
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


def held_out() -> alt.ConcatChart:
    """The main result: R² on held-out masks of the references, of the models, and with the true latent."""
    panels = [_held_out("paper", "The paper's settings", labels=True), _held_out("quick", "quick", labels=False)]
    title = alt.TitleParams(
        "R² on held-out combinations of modules",
        subtitle="trained on connected+; a point for each seed, a line and a number for their mean; 1 is the truth",
        offset=14,
    )
    whole = alt.concat(*panels, columns=2, spacing=24).properties(padding=14, title=title)
    return whole.configure(**theme.config([T, H], size=14))


def _held_out(name: str, title: str, labels: bool) -> Any:
    runs = [run for run in study(name).runs if run.support == MAIN and run.model in (T, H) and run.finished]
    values: list[tuple[str, str, float]] = []
    for reference in ("ridge", "trained_task", "trained_covariance"):
        (known,) = reference_scores(runs, reference, ["ood"])
        values += [(REFERENCE_WORDS[reference], "reference", value) for value in known]
    values += [(run.model, run.model, final_r2(run, "ood")) for model in (T, H) for run in chosen(runs, model)]
    values += [(f"{H}, given the true latent", H, true_latent_r2(run)) for run in chosen(runs, H)]
    rows = [{"row": row, "kind": kind, "R²": value} for row, kind, value in values]
    kinds = alt.Scale(domain=["reference", T, H], range=[theme.LIGHT["reference"], *theme.colors([T, H])])
    axis = alt.Axis(labelLimit=300, ticks=False, domain=False, labelPadding=10, labels=labels)
    y = alt.Y("row:N", sort=[row["row"] for row in rows], title=None, axis=axis)
    x = alt.X("R²:Q", scale=alt.Scale(domain=[0.4, 1.02], nice=False), axis=alt.Axis(values=[0.4, 0.6, 0.8, 1]))
    base = alt.Chart(alt.Data(values=rows)).encode(y=y, color=alt.Color("kind:N", scale=kinds, legend=None))
    points = base.mark_circle(size=80, opacity=0.75).encode(x=x)
    means = base.mark_tick(thickness=2, size=22).encode(x=alt.X("mean(R²):Q", title="R²"))
    numbers = base.mark_text(align="right", fontSize=14).encode(
        x=alt.value(WIDTH + 52), text=alt.Text("mean(R²):Q", format=".3f")
    )
    return alt.layer(points, means, numbers).properties(width=WIDTH, height=alt.Step(32), title=title)


FIGURES: dict[str, Callable[[], alt.ConcatChart]] = {
    "results_quick.png": lambda: draw_figure(study("quick"), "results", MAIN, columns=3),
    "interventions_quick.png": lambda: draw_figure(study("quick"), "interventions", MAIN),
    "length.png": length,
    "held_out.png": held_out,
    "interventions_paper.png": lambda: draw_figure(study("paper"), "interventions", MAIN),
    "results_paper.png": lambda: draw_figure(study("paper"), "results", MAIN, columns=3),
}
