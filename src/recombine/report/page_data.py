"""What the page's plots are made of: every run's numbers once, and the charts' specifications."""

import json
from typing import TYPE_CHECKING, Any

from recombine.report import theme
from recombine.report.panel import LABEL_GAP, NOTHING, Panel, chart
from recombine.report.panels import panels
from recombine.report.series import Series, finite, lookup, models, quantile, supports

if TYPE_CHECKING:
    from recombine.report.collect import RunRecord, Study

SPLITS = {
    "ood": "held-out masks",
    "in_dist": "masks trained on",
    "control": "control",
    "control_modules": "fresh modules",
}
HEIGHT, ROW = 210, 26
DIGITS = 7
EXPLORE = "explore"


def page_data(study: "Study") -> dict[str, Any]:
    """All that the page's script needs."""
    names = models(study)
    most = max((len(group) for group in _groups(study).values()), default=0)
    shown = panels(study) | {EXPLORE: _explore()}
    return {
        "models": names,
        "supports": supports(study),
        "seeds": sorted({run.seed for run in study.runs}),
        "runs": [{"model": run.model, "support": run.support, "seed": run.seed} for run in study.runs],
        "quantiles": {str(count): quantile(count) for count in range(3, most + 1)},
        "themes": {tone: theme.config(names, tone == "dark", size=12) for tone in ("light", "dark")},
        "nothing": NOTHING,
        "labelGap": LABEL_GAP,
        "panels": {name: _panel(study, panel) for name, panel in shown.items()},
        "splits": SPLITS,
        "masks": [_masks(run) for run in study.runs],
    }


def embed_json(data: Any) -> str:
    """JSON that can stand inside a script element, whatever strings are in it."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _explore() -> Panel:
    return Panel(EXPLORE, "R² over training", (), (), domain=(-0.5, 1.0))


def _groups(study: "Study") -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for i, run in enumerate(study.runs):
        groups.setdefault(run.model, []).append(i)
    return groups


def _panel(study: "Study", panel: Panel) -> dict[str, Any]:
    spec = chart(study, panel, legend=[]).to_dict()
    spec |= {
        "width": "container",
        "height": HEIGHT,
        "autosize": {"type": "fit-x" if panel.rows else "fit", "contains": "padding"},
        "padding": {"left": 2, "top": 6, "right": 8, "bottom": 2},
    }
    return {
        "spec": spec,
        "bySupport": panel.by_support,
        "domain": panel.domain,
        "log": panel.log,
        "rowHeight": ROW if panel.rows else None,
        "series": [_series(one) for one in panel.series],
        "references": [_series(one) for one in panel.references],
    }


def _series(one: Series) -> dict[str, Any]:
    return {"run": one.run, "name": one.name, "x": one.x, "y": [_short(y) for y in one.y]}


def _masks(run: "RunRecord") -> dict[str, Any]:
    """Per split: R², the references, and each mask's numbers over the run's steps."""
    found: dict[str, Any] = {"steps": [row["step"] for row in run.rows], "splits": {}}
    for split in SPLITS:
        r2 = [_short(finite(lookup(row, split, "r2"))) for row in run.rows]
        if all(value is None for value in r2):
            continue
        names = dict.fromkeys(mask for row in run.rows for mask in lookup(row, split, "masks") or ())
        columns = {
            mask: [
                [_short(finite(lookup(row, split, "masks", mask, key))) for row in run.rows]
                for key in ("episodes", "mse", "spread")
            ]
            for mask in names
        }
        found["splits"][split] = {"r2": r2, "masks": columns}
    return found


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")
