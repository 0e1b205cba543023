"""The figure of the benchmark: how the cost of a training step grows."""

from collections.abc import Sequence
from math import exp, log
from statistics import fmean

import altair as alt

from recombine.bench.result import Scaling, ScalingPoint, Sweep
from recombine.figure.theme import BLUE, FONT, INK, ORANGE, PAPER

TITLES = {
    "task.episode_length": "episode length N",
    "task.input_dim": "input size d",
    "model.num_layers": "layers",
}


def draw_scaling(scaling: Sequence[Scaling]) -> alt.HConcatChart:
    """One panel per field, and in it for each model the measured points and the power law fitted to them."""
    panels = [_panel(scaling, sweep.field) for sweep in scaling[0].sweeps]
    return (
        alt.hconcat(*panels, spacing=30)
        .properties(
            title=alt.TitleParams("Cost of a training step, fast path", anchor="start", offset=14),
            padding=20,
            background=PAPER,
        )
        .configure(font=FONT)
        .configure_title(fontSize=16, color=INK)
        .configure_axis(labelColor=INK, titleColor="#55606b", gridColor="#e5e9ed", labelFontSize=12, titleFontSize=12)
        .configure_legend(orient="bottom", title=None, labelFontSize=13)
    )


def _panel(scaling: Sequence[Scaling], field: str) -> alt.LayerChart | alt.FacetChart:
    sweeps = {entry.model: entry.sweep(field) for entry in scaling}
    models = list(sweeps)
    measured = [_datum(model, point) for model, sweep in sweeps.items() for point in sweep.points]
    fitted = [_datum(model, point) for model, sweep in sweeps.items() for point in _fitted(sweep)]
    exponents = [
        f"{model}: exponent {sweep.exponent:.2f}" for model, sweep in sweeps.items() if sweep.exponent is not None
    ]
    ticks = sorted({point.value for sweep in sweeps.values() for point in sweep.points})
    color = alt.Color("model:N", scale=alt.Scale(domain=models, range=[BLUE, ORANGE][: len(models)]))
    title = TITLES.get(field, field)
    x = alt.X("value:Q", title=title, scale=alt.Scale(type="log", nice=False), axis=alt.Axis(values=ticks, format="d"))
    y = alt.Y("ms:Q", title="ms per step", scale=alt.Scale(type="log"), axis=alt.Axis(tickCount=5, format="~g"))
    lines = alt.Chart(alt.Data(values=fitted)).mark_line(strokeDash=[5, 4], opacity=0.7).encode(x=x, y=y, color=color)
    points = (
        alt.Chart(alt.Data(values=measured)).mark_point(size=60, filled=True, opacity=1).encode(x=x, y=y, color=color)
    )
    return alt.layer(lines, points).properties(
        width=240, height=240, title=alt.TitleParams(title, subtitle=exponents, fontSize=13, anchor="start")
    )


def _datum(model: str, point: ScalingPoint) -> dict[str, str | float]:
    return {"model": model, "value": point.value, "ms": 1e3 * point.seconds}


def _fitted(sweep: Sweep) -> list[ScalingPoint]:
    """The two ends of the fitted power law, which passes through the centre of the points."""
    if sweep.exponent is None:
        return []
    first, last = sweep.points[0].value, sweep.points[-1].value
    center = fmean(log(point.value) for point in sweep.points), fmean(log(point.seconds) for point in sweep.points)
    return [ScalingPoint(value, exp(center[1] + sweep.exponent * (log(value) - center[0]))) for value in (first, last)]
