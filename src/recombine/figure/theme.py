"""The visual theme of all figures: colours and fonts, light and dark."""

from typing import Any

from recombine.config.model import EXPLICIT, EXPLICIT_STEPS

# The palette of Okabe and Ito, safe for colour-blind readers. On a dark background, the same hues are lighter.
BLUE, ORANGE, INK, PAPER = "#0072b2", "#d55e00", "#1c2733", "#ffffff"
FONT = "Helvetica Neue, Helvetica, Arial, Liberation Sans, DejaVu Sans, sans-serif"
KNOWN = {
    "transformer": (BLUE, "#56b4e9"),
    "hypertransformer": (ORANGE, "#ff9a57"),
    f"{EXPLICIT}{EXPLICIT_STEPS}": ("#cc79a7", "#e6a5cb"),
    "informed": ("#009e73", "#35c99f"),
}
CUSTOM = [("#e69f00", "#f2bd45"), ("#56b4e9", "#9bd4f7"), ("#6f6f6f", "#b9b9b9"), ("#8c564b", "#d0a49a")]
LIGHT = {"ink": INK, "soft": "#55606b", "grid": "#e5e9ed", "paper": PAPER, "reference": "#6b7580"}
DARK = {"ink": "#e8edf2", "soft": "#aab5c0", "grid": "#2f3943", "paper": "#161c23", "reference": "#9aa6b2"}


def colors(models: list[str], dark: bool = False) -> list[str]:
    """The colour of each model. A model of ours has the same colour in every study."""
    custom = [name for name in models if name not in KNOWN]
    pairs = KNOWN | {name: CUSTOM[i % len(CUSTOM)] for i, name in enumerate(custom)}
    return [pairs[name][dark] for name in models]


def config(models: list[str], dark: bool = False, size: int = 13) -> dict[str, Any]:
    """Vega-Lite's configuration of colours, fonts and axes. `size` is the font size in pixels."""
    tone = DARK if dark else LIGHT
    return {
        "background": tone["paper"],
        "font": FONT,
        "range": {"category": colors(models, dark)},
        "view": {"stroke": None},
        "axis": {
            "labelColor": tone["ink"],
            "titleColor": tone["soft"],
            "gridColor": tone["grid"],
            "domainColor": tone["soft"],
            "tickColor": tone["soft"],
            "labelFontSize": size,
            "titleFontSize": size,
            "titleFontWeight": "normal",
        },
        "title": {
            "anchor": "start",
            "frame": "group",
            "color": tone["ink"],
            "subtitleColor": tone["soft"],
            "fontSize": size + 2,
            "subtitleFontSize": size - 1,
            "subtitlePadding": 4,
            "offset": 8,
        },
        "legend": {
            "orient": "top",
            "title": None,
            "labelColor": tone["ink"],
            "labelFontSize": size,
            "labelLimit": 320,
            "symbolStrokeWidth": 4,
            "symbolSize": 220,
        },
        "style": {
            "reference": {"color": tone["reference"], "stroke": tone["reference"], "strokeWidth": 1.2},
            "reference-label": {"color": tone["reference"], "fill": tone["reference"], "fontSize": size - 1},
            "note": {"color": tone["soft"], "fill": tone["soft"], "fontSize": size},
        },
    }
