"""Figures of a sweep: a line for every configuration, and heat maps of the most important fields."""

from itertools import combinations
from typing import Any

import altair as alt

from recombine.figure import theme
from recombine.jobs.grid import short_names
from recombine.study.sweep_results import SweepResults, value_text, varied

WIDTH, HEIGHT, CELL = 760, 300, 46
MOST_LINES = 500  # if there are more configurations, this many are drawn, spaced evenly by rank
PAIRED = 3  # each pair of this many most important fields has a heat map
SCHEME = "viridis"


def sweep_figures(results: SweepResults, dark: bool = False) -> dict[str, Any]:
    """Vega-Lite charts, by name; empty if no field varies."""
    fields = varied(results)
    if not fields or not results.ranked:
        return {}
    found = {"parallel": _parallel(results, fields, dark)}
    if len(fields) > 1:
        found["maps"] = _maps(results)
    drawn = {}
    for name, (chart, data) in found.items():
        drawn[name] = chart.configure(**theme.config([], dark))
        drawn[name]["datasets"] = data  # set last, because each method of a chart copies its data
    return drawn


def _score(results: SweepResults) -> tuple[str, str]:
    words = "held-out masks" if results.selected_by == "select_ood" else "masks trained on"
    return results.selected_by, f"R² on {words}, mean over seeds"


def _values(results: SweepResults, field: str) -> list[Any]:
    return sorted({one.point[field] for one in results.ranked}, key=lambda v: (v is None, str(type(v)), v or 0))


def _parallel(results: SweepResults, fields: list[str], dark: bool) -> tuple[Any, dict[str, Any]]:
    """A parallel-coordinates plot. Each value has its own band on the axis; better configurations are higher in it."""
    by, title = _score(results)
    scores = [one.scores[by].mean for one in results.ranked]
    low, high = min(scores), max(scores)
    titles = [*short_names(fields).values(), "R²"]
    values = {field: _values(results, field) for field in fields}
    lines, labels = [], []
    every_so_many = -(-len(results.ranked) // MOST_LINES)
    for rank, one in list(enumerate(results.ranked))[::every_so_many]:
        place = 0.5 if high == low else (scores[rank] - low) / (high - low)
        within = [(values[f].index(one.point[f]) + 0.2 + 0.6 * place) / len(values[f]) for f in fields]
        for name, at in zip(titles, [*within, place], strict=True):
            lines.append({"i": rank, "axis": name, "at": at, "score": scores[rank], "what": one.configuration})
    for field, name in zip(fields, titles, strict=False):
        count = len(values[field])
        labels += [{"axis": name, "at": (i + 0.5) / count, "text": value_text(v)} for i, v in enumerate(values[field])]
    labels += [{"axis": "R²", "at": float(value == high), "text": f"{value:.3f}"} for value in {low, high}]
    tone = theme.DARK if dark else theme.LIGHT
    x = alt.X("axis:N", sort=titles, title=None, axis=alt.Axis(orient="top", labelAngle=0, domain=False, ticks=False))
    y = alt.Y("at:Q", axis=None, scale=alt.Scale(domain=[-0.03, 1.03]))
    legend = alt.Legend(gradientLength=260, gradientOpacity=1, title=title, titleLimit=400, titleColor=tone["soft"])
    color = alt.Color("score:Q", scale=alt.Scale(scheme=SCHEME), legend=legend)
    data = alt.Chart(alt.NamedData("lines"))
    tooltip = [alt.Tooltip("what:N", title="configuration"), alt.Tooltip("score:Q", title="R²", format=".4f")]
    opacity = max(0.25, min(0.9, 60 / min(len(results.ranked), MOST_LINES)))
    every = data.mark_line(strokeWidth=1.3, strokeOpacity=opacity).encode(
        x=x, y=y, detail="i:N", color=color, tooltip=tooltip
    )
    best = (
        data.transform_filter("datum.i == 0")
        .mark_line(strokeWidth=3.5, color=tone["ink"], point=alt.OverlayMarkDef(color=tone["ink"], size=60))
        .encode(x=x, y=y, tooltip=tooltip)
    )
    words = alt.Chart(alt.NamedData("labels")).encode(x=x, y=y, text="text:N")
    halo = words.mark_text(align="right", dx=-8, fontSize=12, stroke=tone["paper"], strokeWidth=5, strokeJoin="round")
    text = words.mark_text(align="right", dx=-8, fontSize=12, color=tone["ink"])
    subtitle = "each line connects the values of a configuration; at each value, better ones are higher; dark: the best"
    heading = alt.TitleParams("Every configuration", subtitle=subtitle)
    chart = alt.layer(every, best, halo, text).properties(width=WIDTH, height=HEIGHT, title=heading, padding=8)
    return chart, {"lines": lines, "labels": labels}


def _maps(results: SweepResults) -> tuple[Any, dict[str, Any]]:
    """Heat maps for each pair of the most important fields: the mean over all other fields."""
    by, title = _score(results)
    chosen = [one.field for one in results.importance[:PAIRED]]
    charts, data = [], {}
    for down, across in combinations(chosen, 2):
        cells: dict[tuple[Any, Any], list[float]] = {}
        for one in results.ranked:
            cells.setdefault((one.point[down], one.point[across]), []).append(one.scores[by].mean)
        rows = [
            {"down": value_text(a), "across": value_text(b), "mean": sum(v) / len(v), "count": len(v)}
            for (a, b), v in cells.items()
        ]
        sort = {name: [value_text(v) for v in _values(results, field)] for name, field in (("d", down), ("a", across))}
        x = alt.X("across:N", title=across, sort=sort["a"], axis=alt.Axis(labelAngle=0))
        y = alt.Y("down:N", title=down, sort=sort["d"])
        middle = (min(row["mean"] for row in rows) + max(row["mean"] for row in rows)) / 2
        data[f"map{len(charts)}"] = rows
        base = alt.Chart(alt.NamedData(f"map{len(charts)}")).encode(x=x, y=y)
        tooltip = [
            alt.Tooltip("mean:Q", title=title, format=".4f"),
            alt.Tooltip("count:Q", title="configurations"),
        ]
        color = alt.Color("mean:Q", scale=alt.Scale(scheme=SCHEME), legend=None)
        square = base.mark_rect().encode(color=color, tooltip=tooltip)
        number = base.mark_text(fontSize=12).encode(
            text=alt.Text("mean:Q", format=".3f"),
            color=alt.condition(f"datum.mean > {middle!r}", alt.value("#101010"), alt.value("#f5f5f5")),
            tooltip=tooltip,
        )
        width, height = 62 * len(sort["a"]), CELL * len(sort["d"])
        charts.append(alt.layer(square, number).properties(width=width, height=height))
    text = alt.TitleParams("The most important fields, in pairs", subtitle=f"{title} and over all other fields")
    whole = alt.concat(*charts, columns=2, spacing=36).resolve_scale(color="independent")
    return whole.properties(title=text, padding=8), data
