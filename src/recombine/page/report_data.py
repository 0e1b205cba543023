"""The data of the page's plots: the numbers of every run, and the specifications of the charts."""

from typing import Any

from recombine.figure import theme
from recombine.figure.chart import LABEL_GAP, NOTHING, chart
from recombine.figure.contents import all_panels
from recombine.figure.panel import Panel
from recombine.record.score import MaskScore
from recombine.storage.reader import StoredRun
from recombine.study.collect import Study
from recombine.study.interval import t_quantile
from recombine.study.series import Series, finite, models, supports
from recombine.study.wording import SPLIT_WORDS

Json = dict[str, Any]
"""Data for the page's script."""

EXPLORED_SPLITS = {"ood": SPLIT_WORDS["ood"]} | SPLIT_WORDS | {"in_dist": "masks trained on"}
HEIGHT, ROW = 210, 26
DIGITS = 7
EXPLORE = "explore"


def page_data(study: Study) -> Json:
    """All data for the page's script."""
    names = models(study)
    most = max((len(group) for group in _groups(study).values()), default=0)
    shown = all_panels(study) | {EXPLORE: _explore()}
    return {
        "models": names,
        "supports": supports(study),
        "seeds": sorted({run.seed for run in study.runs}),
        "runs": [{"model": run.model, "support": run.support, "seed": run.seed} for run in study.runs],
        "quantiles": {str(count): t_quantile(count) for count in range(3, most + 1)},
        "themes": {tone: theme.config(names, tone == "dark", size=12) for tone in ("light", "dark")},
        "nothing": NOTHING,
        "labelGap": LABEL_GAP,
        "panels": {name: _panel(study, panel) for name, panel in shown.items()},
        "splits": EXPLORED_SPLITS,
        "masks": [_masks(run) for run in study.runs],
    }


def _explore() -> Panel:
    return Panel(EXPLORE, "R² over training", (), (), domain=(-0.5, 1.0))


def _groups(study: Study) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for i, run in enumerate(study.runs):
        groups.setdefault(run.model, []).append(i)
    return groups


def _panel(study: Study, panel: Panel) -> Json:
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


def _series(one: Series) -> Json:
    return {"run": one.run, "name": one.name, "x": one.x, "y": [_short(y) for y in one.y]}


def _masks(run: StoredRun) -> Json:
    """For each split: R², and the numbers of each mask, over the steps of the run."""
    found: Json = {"steps": [row.step for row in run.rows], "splits": {}}
    for split in EXPLORED_SPLITS:
        scores = [row.split(split) for row in run.rows]
        if all(score is None for score in scores):
            continue
        r2 = [None if score is None else _short(finite(score.r2)) for score in scores]
        by_step = [(score.masks or {}) if score is not None else {} for score in scores]
        names = dict.fromkeys(mask for masks in by_step for mask in masks)
        columns = {mask: [_column(by_step, mask, key) for key in ("episodes", "mse", "spread")] for mask in names}
        found["splits"][split] = {"r2": r2, "masks": columns}
    return found


def _column(by_step: list[dict[str, MaskScore]], mask: str, key: str) -> list[float | None]:
    return [_short(finite(getattr(masks[mask], key))) if mask in masks else None for masks in by_step]


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")
