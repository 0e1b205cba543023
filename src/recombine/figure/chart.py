"""Builds the Vega-Lite chart of a panel, for a file or for the page."""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from math import ceil, floor, log10
from typing import Any

import altair as alt

from recombine.figure.panel import Panel
from recombine.storage.reader import StoredRun
from recombine.study.collect import Study
from recombine.study.series import ReferencePoint, models, summarise, summarise_references

NOTHING = "no run yet"
LABEL_GAP = 0.085  # minimum distance between two reference labels, as a fraction of the panel's height
FEW = 12  # a curve with at most this many points also shows the points
THOUSANDS = "datum.value >= 1000 ? format(datum.value / 1000, '~g') + 'k' : format(datum.value, '~g')"

Rows = list[dict[str, Any]]
"""A table of Vega-Lite data."""


def tables(study: Study, panel: Panel, chosen: Callable[[StoredRun], bool]) -> dict[str, Rows]:
    """The data of a panel's chart: the means of the chosen runs, the references, and a note if there is no data."""
    points = summarise(study, panel.series, chosen)
    return {
        f"{panel.name}_means": [asdict(point) for point in points],
        f"{panel.name}_references": _labelled(panel, summarise_references(study, panel.references, chosen)),
        f"{panel.name}_note": [] if points else [{"text": NOTHING}],
    }


def chart(study: Study, panel: Panel, legend: list[str]) -> alt.LayerChart:
    """The layers of a panel's chart, which read the tables named after it. The caller sets size, title and theme."""
    color, tooltip = _color(models(study), legend), _tooltip(panel, several=len(study.seeds) > 1)
    if panel.rows:
        return _rows(panel, color, tooltip, shown_models(study, [panel]))
    last_step = max((row.step for run in study.runs for row in run.rows), default=0) or 1
    return _curves(panel, color, tooltip, last_step)


def shown_models(study: Study, shown: Iterable[Panel]) -> list[str]:
    present = {study.runs[one.run].model for panel in shown for one in panel.series}
    return [name for name in models(study) if name in present]


def _labelled(panel: Panel, points: list[ReferencePoint]) -> Rows:
    """The references with the positions of their labels, which stand at the last x and must not overlap."""
    low, high = panel.domain

    def place(value: float) -> float:
        value = min(max(value, low), high)
        return log10(value / low) / log10(high / low) if panel.log else (value - low) / (high - low)

    rows = [asdict(point) for point in points]
    placed = sorted({row["name"]: row for row in rows}.values(), key=lambda row: row["value"])
    heights = spread_out([place(row["value"]) for row in placed])
    for row, height in zip(placed, heights, strict=True):
        arrow = " ↓" if row["value"] < low else " ↑" if row["value"] > high else ""
        row["label"] = row["name"] + arrow
        row["at"] = low * (high / low) ** height if panel.log else low + height * (high - low)
    return rows


def spread_out(heights: list[float]) -> list[float]:
    """Move ascending heights in [0, 1] apart, so that the distance between neighbours is at least LABEL_GAP."""
    moved: list[float] = []
    for height in heights:
        moved.append(max(height, moved[-1] + LABEL_GAP) if moved else height)
    for i in reversed(range(len(moved))):
        moved[i] = min(moved[i], 1 - LABEL_GAP * (len(moved) - 1 - i))
    return moved


def _value_scale(panel: Panel) -> alt.Scale:
    kind = alt.Scale(type="log") if panel.log else alt.Scale(type="linear", zero=False)
    return alt.Scale(**kind.to_dict(), domain=list(panel.domain), clamp=True, nice=False)


def _value_axis(panel: Panel) -> alt.Axis:
    """Ticks at round numbers, few enough to read on a small panel."""
    low, high = panel.domain
    if not panel.log:
        step = {0.5: 0.1, 0.0: 0.2}.get(low, 0.5)
        values = [round(low + i * step, 9) for i in range(round((high - low) / step) + 1)]
        return _axis_with(values)
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    values: list[float] = []
    finer = ([digit / 10 for digit in range(10, 100, step)] for step in (5, 2, 1))
    for digits in ((1,), (1, 3), (1, 2, 5), range(1, 10), *finer):
        ticks = [digit * 10.0**decade for decade in decades for digit in digits]
        values = [round(tick, 12) for tick in ticks if low <= tick <= high]
        if len(values) >= 3:
            break
    return _axis_with(values)


def _axis_with(values: list[float]) -> alt.Axis:
    # Vega leaves out every other value if there are more than the count it would have chosen.
    return alt.Axis(values=values, tickCount=len(values), format="~g", labelOverlap=False)


def _color(names: list[str], shown: list[str]) -> alt.Color:
    """One colour per model of the study. The legend lists only the models that are shown."""
    legend = alt.Legend(symbolType="stroke", symbolOpacity=1, values=shown) if shown else None
    return alt.Color("model:N", scale=alt.Scale(domain=names), legend=legend)


def _tooltip(panel: Panel, several: bool) -> list[alt.Tooltip]:
    """The tooltip of a point; it includes the interval if there are `several` seeds."""
    number = ".4g" if panel.log else ".4f"
    # In a tooltip of the nearest point, Vega-Lite shows a field only if it has a format, even if the field is text.
    text: Any = {"format": "s", "formatType": "toString"}
    x_title, steps = panel.x_title, panel.x_title == "step"
    return [
        alt.Tooltip("model:N", **text),
        *([alt.Tooltip("name:N", title="curve", **text)] if any(one.name for one in panel.series) else []),
        alt.Tooltip("x:Q", title=x_title, format=",") if steps else alt.Tooltip("x:N", title=x_title, **text),
        alt.Tooltip("mean:Q", title=f"{panel.y_title}, mean", format=number),
        *(alt.Tooltip(f"{end}:Q", format=number) for end in ("low", "high") if several),
        alt.Tooltip("seeds:Q", format="d"),
    ]


def _curves(panel: Panel, color: alt.Color, tooltip: list[alt.Tooltip], last_step: int) -> Any:
    low, _ = panel.domain
    steps = panel.x_title == "step"
    x = (
        alt.X(
            "x:Q",
            title="step",
            scale=alt.Scale(domain=[0, last_step], nice=False),
            axis=alt.Axis(
                labelExpr=THOUSANDS,
                grid=False,
                labelFlush=True,
                labelOverlap=True,
                labelSeparation=8,
                **_quarters(last_step),
            ),
        )
        if steps
        else alt.X("x:O", title=panel.x_title, sort=None, axis=alt.Axis(labelAngle=0, grid=False))
    )
    y = alt.Y("mean:Q", title=panel.y_title, scale=_value_scale(panel), axis=_value_axis(panel))
    curves = sorted({one.name for one in panel.series})
    dash = alt.StrokeDash(
        "name:N",
        scale=alt.Scale(domain=curves, range=[[5, 4] if name in panel.dashed else [1, 0] for name in curves]),
        legend=None,
    )
    means = alt.Chart(alt.NamedData(f"{panel.name}_means"))
    shown = means.transform_filter("isValid(datum.mean)").encode(x=x, y=y, color=color)
    band = (  # only for solid curves: with more bands, none could be distinguished
        means.transform_filter("isValid(datum.low)")
        .transform_filter(alt.FieldOneOfPredicate("name", [name for name in curves if name not in panel.dashed]))
        .transform_calculate(bottom=f"max(datum.low, {low!r})")
        .mark_area(opacity=0.18, clip=True)
        .encode(x=x, y=alt.Y("bottom:Q", scale=_value_scale(panel)), y2="high:Q", color=color, detail="name:N")
    )
    line = means.mark_line(strokeWidth=2.2, interpolate="linear").encode(x=x, y=y, color=color, strokeDash=dash)
    hover = alt.selection_point(
        name=f"{panel.name}_hover", on="pointermove", nearest=True, empty=False, clear="pointerout"
    )
    few = not steps or 0 < max((len(one.x) for one in panel.series), default=0) <= FEW
    points = (
        shown.mark_circle(size=55)
        .encode(
            opacity=alt.condition(hover, alt.value(1), alt.value(1 if few else 0)),
            tooltip=tooltip,
        )
        .add_params(hover)
    )
    layers: list[Any] = [*_reference_layers(panel, x), band, line]
    if not panel.log:
        below = shown.transform_filter(f"datum.mean < {low!r}")
        layers.append(below.mark_point(shape="triangle-down", filled=True, size=24, opacity=1, yOffset=-2))
    return alt.layer(*layers, points, _note(panel))


def _quarters(last_step: int) -> Any:
    """Ticks at the quarters of the training if its length is a round number, so that the last step has a tick."""
    quarter, rest = divmod(last_step, 4)
    round_number = not rest and len(f"{quarter}".rstrip("0")) <= 2
    return {"values": [i * quarter for i in range(5)]} if round_number else {"tickCount": 4}


def _reference_layers(panel: Panel, x: alt.X) -> list[Any]:
    """Thin horizontal rules, or lines if a reference varies along x, labelled on the right."""
    data = alt.Chart(alt.NamedData(f"{panel.name}_references"))
    y = alt.Y("value:Q", scale=_value_scale(panel))
    tooltip = [alt.Tooltip("name:N", title="reference"), alt.Tooltip("value:Q", title=panel.y_title, format=".4g")]
    varies = any(one.x != (None,) for one in panel.references)
    lines = (
        data.mark_line(style="reference", strokeWidth=1.2).encode(x=x, y=y, detail="name:N", tooltip=tooltip)
        if varies
        else data.mark_rule(style="reference").encode(y=y, tooltip=tooltip)
    )
    labels = (
        data.transform_filter("isValid(datum.label)")
        .mark_text(style="reference-label", align="left", baseline="middle", dx=5)
        .encode(x=alt.value("width"), y=alt.Y("at:Q", scale=_value_scale(panel)), text="label:N")
    )
    return [lines, labels]


def _rows(panel: Panel, color: alt.Color, tooltip: list[alt.Tooltip], present: list[str]) -> Any:
    low, _ = panel.domain
    y = alt.Y(
        "x:N",
        title=None,
        sort=None,
        axis=alt.Axis(ticks=False, domain=False, grid=True, labelLimit=220, labelPadding=6),
    )
    x = alt.X("mean:Q", title=panel.y_title, scale=_value_scale(panel), axis=_value_axis(panel))
    means = alt.Chart(alt.NamedData(f"{panel.name}_means")).transform_filter("isValid(datum.mean)")
    place = {"y": y, "yOffset": alt.YOffset("model:N", scale=alt.Scale(domain=present)), "color": color}
    ceiling = "datum.name === 'ceiling'"
    bars = (
        means.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=2, opacity=0.45)
        .encode(x=alt.X("low:Q", scale=_value_scale(panel)), x2="high:Q", **place)
    )
    ticks = (
        means.transform_filter(ceiling)
        .mark_tick(thickness=2.5, size=13, opacity=1)
        .encode(x=x, tooltip=tooltip, **place)
    )
    kept = f"!({ceiling})"
    points = means.transform_filter(f"{kept} && datum.mean >= {low!r}").mark_circle(size=62, opacity=1)
    below = means.transform_filter(f"{kept} && datum.mean < {low!r}").mark_point(
        shape="triangle-left", filled=True, size=70, opacity=1, xOffset=4
    )
    return alt.layer(bars, ticks, *(one.encode(x=x, tooltip=tooltip, **place) for one in (points, below)), _note(panel))


def _note(panel: Panel) -> Any:
    place = {"x": alt.value("width"), "y": alt.value(70)}
    data = alt.Chart(alt.NamedData(f"{panel.name}_note"))
    return data.mark_text(style="note", align="right", dx=-60).encode(text="text:N", **place)
