"""The figures of the docs, made only from the runs in evidence/."""

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import altair as alt
from findings import explicit_novel, explicit_r2, novel_r2, reference_novel
from records import MAIN, H, T, chosen, final_r2, study, sweep

from recombine.figure import theme
from recombine.figure.compose import draw_figure
from recombine.study.series import reference_scores

WIDTH, HEIGHT = 300, 220
EXPLICIT = "hypertransformer, explicit inference"
BLEND = "blend of trained tasks"  # the reference trained_covariance


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
    """The main result: held-out R², and R² on the novel part, of references and models, and with explicit inference."""
    runs = [run for run in study("paper").runs if run.support == MAIN and run.model in (T, H) and run.finished]
    plain, hyper = chosen(runs, T), chosen(runs, H)
    blend = reference_scores(runs, "trained_covariance", ["ood"])[0]
    whole = [
        *((BLEND, value) for value in blend),
        *((T, final_r2(run, "ood")) for run in plain),
        *((H, final_r2(run, "ood")) for run in hyper),
        *((EXPLICIT, explicit_r2(run)) for run in hyper),
    ]
    novel = [
        *((BLEND, reference_novel(run, "trained_covariance")) for run in hyper),
        *((T, novel_r2(run)) for run in plain),
        *((H, novel_r2(run)) for run in hyper),
        *((EXPLICIT, explicit_novel(run)) for run in hyper),
    ]
    panels = [_dots(whole, "R² of the whole task", labels=True), _dots(novel, "R² of its novel part", labels=False)]
    title = alt.TitleParams(
        "Unseen combinations of trained modules",
        subtitle="at the paper's settings; a point for each seed, a line and a number for their mean; 1 is perfect",
        offset=14,
    )
    both = alt.concat(*panels, columns=2, spacing=24).properties(padding=14, title=title)
    return both.configure(**theme.config([T, H], size=14))


def _dots(values: Sequence[tuple[str, float | None]], title: str, labels: bool) -> Any:
    rows = [{"row": row, "R²": value} for row, value in values if value is not None]
    most = max(Counter(row["row"] for row in rows).values())
    names, of_models = list(dict.fromkeys(row for row, _ in values)), {T: T, H: H, EXPLICIT: "explicit-3"}
    shades = [theme.colors([of_models[name]])[0] if name in of_models else theme.LIGHT["reference"] for name in names]
    axis = alt.Axis(labelLimit=300, ticks=False, domain=False, labelPadding=10, labels=labels)
    y = alt.Y("row:N", sort=names, title=None, axis=axis, scale=alt.Scale(domain=names))
    x = alt.X(
        "R²:Q", scale=alt.Scale(domain=[-0.02, 1.02], nice=False), axis=alt.Axis(values=[0, 0.2, 0.4, 0.6, 0.8, 1])
    )
    color = alt.Color("row:N", scale=alt.Scale(domain=names, range=shades), legend=None)
    base = alt.Chart(alt.Data(values=rows)).encode(y=y, color=color)
    points = base.mark_circle(size=80, opacity=0.75, clip=True).encode(x=x)
    means = base.mark_tick(thickness=2, size=22, clip=True).encode(x=alt.X("mean(R²):Q", title="R²"))
    written = [
        {"row": name, "text": _mean([row["R²"] for row in rows if row["row"] == name], most)}
        for name in dict.fromkeys(row["row"] for row in rows)
    ]
    numbers = alt.Chart(alt.Data(values=written)).mark_text(align="left", fontSize=14)
    numbers = numbers.encode(y=y, color=color, x=alt.value(WIDTH + 14), text="text:N")
    return alt.layer(points, means, numbers).properties(width=WIDTH, height=alt.Step(32), title=title)


def _mean(values: Sequence[float], most: int) -> str:
    """The mean, and the number of seeds where it is not that of the others."""
    seeds = f" ({len(values)} seed{'s' if len(values) > 1 else ''})" if len(values) < most else ""
    return f"{fmean(values):.{4 if fmean(values) > 0.999 else 3}f}{seeds}"


FIGURES: dict[str, Callable[[], alt.ConcatChart]] = {
    "results_quick.png": lambda: draw_figure(study("quick"), "results", MAIN, columns=3),
    "interventions_quick.png": lambda: draw_figure(study("quick"), "interventions", MAIN),
    "length.png": length,
    "held_out.png": held_out,
    "interventions_paper.png": lambda: draw_figure(study("paper"), "interventions", MAIN),
    "results_paper.png": lambda: draw_figure(study("paper"), "results", MAIN, columns=3),
}
