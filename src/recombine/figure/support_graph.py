"""The drawing of a support: the graph of its modules.

Paper: Figure 1A (lower), fig:conceptual.
"""

from itertools import combinations
from math import cos, pi, sin
from typing import Any

import altair as alt

from recombine.figure.theme import BLUE, FONT, INK, ORANGE, PAPER
from recombine.study.wording import module_name
from recombine.support.masks import Mask, active_modules, format_mask
from recombine.support.support import Support

TRAINED, HELD_OUT = "trained", "held out"
SIZE = 300
MOST_ROWS = 24


def draw_support(support: Support) -> alt.HConcatChart:
    """The module graph (a line joins two modules that a mask combines) beside the list of masks."""
    state = "connected" if support.connected else f"{len(support.components)} components"
    count = len(support.masks)
    subtitle = f"{count} mask{'s' if count > 1 else ''} trained on, {len(support.held_out)} held out · {state}"
    chart = alt.hconcat(_graph(support), _list(support), spacing=36, center=True)
    return (
        chart.properties(
            title=alt.TitleParams(support.name, subtitle=subtitle, anchor="start", offset=18),
            padding=20,
            background=PAPER,
        )
        .configure(font=FONT)
        .configure_view(strokeWidth=0)
        .configure_title(fontSize=20, subtitleFontSize=13, color=INK, subtitleColor="#55606b", subtitlePadding=6)
        .configure_legend(labelFontSize=13, symbolSize=500, symbolStrokeWidth=3, orient="bottom", title=None)
        .configure_axis(labelFontSize=12, titleFontSize=12, labelColor=INK, titleColor="#55606b")
    )


def _edges(masks: tuple[Mask, ...]) -> set[tuple[int, int]]:
    return {pair for mask in masks for pair in combinations(active_modules(mask), 2)}


def _scale(kinds: list[str]) -> alt.Scale:
    return alt.Scale(domain=kinds, range=[BLUE, ORANGE][: len(kinds)])


def _graph(support: Support) -> Any:
    M = support.num_modules
    at = {m: (sin(2 * pi * (m - 1) / M), cos(2 * pi * (m - 1) / M)) for m in range(1, M + 1)}
    trained = _edges(support.masks)
    kinds = dict.fromkeys(trained, TRAINED)
    kinds |= dict.fromkeys(_edges(support.held_out) - trained, HELD_OUT)
    edges = [
        {"x": at[i][0], "y": at[i][1], "x2": at[j][0], "y2": at[j][1], "kind": kind}
        for (i, j), kind in sorted(kinds.items())
    ]
    nodes = [{"x": x, "y": y, "module": module_name(m)} for m, (x, y) in at.items()]
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[-1.2, 1.2]))
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[-1.2, 1.2]))
    shown = [TRAINED, HELD_OUT] if HELD_OUT in kinds.values() else [TRAINED]
    kind = alt.Color("kind:N", scale=_scale(shown), legend=alt.Legend(symbolType="stroke"))
    dash = alt.StrokeDash("kind:N", scale=alt.Scale(domain=shown, range=[[1, 0], [7, 5]][: len(shown)]))
    lines = (
        alt.Chart(alt.Data(values=edges))
        .mark_rule(strokeWidth=3 if M <= 10 else 1.5, opacity=0.9)
        .encode(x=x, y=y, x2="x2:Q", y2="y2:Q", color=kind, strokeDash=dash)
    )
    radius = 20 if M <= 10 else max(8, 200 / M)
    base = alt.Chart(alt.Data(values=nodes)).encode(x=x, y=y)
    circles = base.mark_circle(size=pi * radius**2, color=PAPER, stroke=INK, strokeWidth=2, opacity=1)
    labels = base.mark_text(fontSize=max(8, radius * 0.8), color=INK, dy=1).encode(text="module:N")
    return alt.layer(lines, circles, labels).properties(width=SIZE, height=SIZE)


def _list(support: Support) -> Any:
    """One row per mask, with a dot for each active module."""
    rows = [(mask, TRAINED) for mask in support.masks] + [(mask, HELD_OUT) for mask in support.held_out]
    shown = rows[:MOST_ROWS]
    names = [format_mask(mask) for mask, _ in shown]
    cells = [
        {"mask": name, "module": m, "kind": kind if active else "off"}
        for name, (mask, kind) in zip(names, shown, strict=True)
        for m, active in enumerate(mask, start=1)
    ]
    title = "masks" if len(shown) == len(rows) else f"the first {len(shown)} of {len(rows)} masks"
    base = alt.Chart(alt.Data(values=cells)).encode(
        x=alt.X("module:O", axis=alt.Axis(title="module", orient="top", labelAngle=0, ticks=False, domain=False)),
        y=alt.Y("mask:N", sort=names, axis=alt.Axis(title=None, ticks=False, domain=False, labelFont="monospace")),
    )
    off = base.transform_filter("datum.kind === 'off'").mark_circle(size=50, color="#d9dee3", opacity=1)
    on = (
        base.transform_filter("datum.kind !== 'off'")
        .mark_circle(size=130, opacity=1)
        .encode(color=alt.Color("kind:N", scale=_scale([TRAINED, HELD_OUT]), legend=None))
    )
    return alt.layer(off, on).properties(
        width=24 * support.num_modules,
        height=max(SIZE, 20 * len(shown)),
        title=alt.TitleParams(title, fontSize=13),
    )
