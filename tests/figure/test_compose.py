import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from recombine.figure.compose import draw_figure, figures, write_figures
from recombine.figure.theme import colors
from recombine.storage.reader import StoredRun
from recombine.study.collect import Study
from recombine.study.wording import ordered_models
from tests.study.studies import (
    custom_study,
    half_study,
    hostile_study,
    make_run,
    whole_study,
    with_reference,
    with_score,
)

# The masks that neither Connected nor Disconnected trains on, written out.
OUTSIDE_BOTH = {"100100", "100010", "010100", "010010", "010001", "001010", "001001"}


def rows_of(chart: Any, table: str) -> list[dict[str, Any]]:
    return chart["datasets"][table]


def row_of(chart: Any, table: str, **wanted: Any) -> dict[str, Any]:
    found = [row for row in rows_of(chart, table) if wanted.items() <= row.items()]
    assert len(found) == 1, found
    return found[0]


def runs_of(study: Study, model: str, support: str = "connected+") -> list[StoredRun]:
    return [run for run in study.runs if (run.model, run.support) == (model, support)]


def test_how_many_seeds_there_are_is_told(study: Study) -> None:
    def words(*seeds_of_connected: int) -> str:
        kept = [run for run in study.runs if run.support != "connected" or run.seed in seeds_of_connected]
        return json.dumps(draw_figure(Study(tuple(kept)), "results").to_dict(), ensure_ascii=False)

    assert "Lines: mean over 3 seeds" in words(0, 1, 2)
    assert "Lines: mean over 1 to 3 seeds" in words(0)
    assert "range where there are 2" in words(0, 1)
    assert "range where there are 2" not in words(0)


def test_a_run_that_has_not_been_measured_is_no_seed_of_a_line(study: Study) -> None:
    runs = [replace(run, rows=()) if run.support == "connected" and run.seed == 2 else run for run in study.runs]
    assert "Lines: mean over 2 to 3 seeds" in json.dumps(draw_figure(Study(tuple(runs)), "results").to_dict())


@pytest.mark.parametrize(
    ("panel", "name", "read"),
    [
        ("ood", "", lambda row: row.ood.r2),
        ("loss", "", lambda row: row.in_dist.mse),
        ("in_dist", "", lambda row: row.in_dist.r2),
        ("probe", "residual stream", lambda row: row.probe.ood[2]),
        ("probe", "latent", lambda row: row.probe.latent.ood),
        ("control", "fresh teacher", lambda row: row.control.r2),
        ("control", "fresh modules", lambda row: row.control_modules.r2),
    ],
)
def test_mean_and_interval_over_three_seeds(study: Study, results: Any, panel: str, name: str, read: Any) -> None:
    for i in (0, 7, 40):
        values = [read(run.rows[i]) for run in runs_of(study, "hypertransformer")]
        row = row_of(results, f"{panel}_means", model="hypertransformer", name=name, x=round(i * 125))
        low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
        assert row["seeds"] == 3
        assert row["mean"] == pytest.approx(np.mean(values))
        assert (row["low"], row["high"]) == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))


def test_the_range_of_two_seeds_and_nothing_of_one() -> None:
    values = [run.rows[-1].ood.r2 for run in runs_of(custom_study(), "Bottleneck")]
    row = row_of(draw_figure(custom_study(), "results"), "ood_means", model="Bottleneck", x=5000)
    assert (row["low"], row["high"]) == (min(values), max(values))
    row = row_of(draw_figure(half_study(), "results"), "ood_means", model="transformer", x=2500)
    assert (row["low"], row["high"], row["seeds"]) == (None, None, 1)


def test_connected_against_disconnected(study: Study, results: Any) -> None:
    for support in ("connected", "disconnected"):
        runs = runs_of(study, "transformer", support)
        own = [run.rows[-1].ood.r2 for run in runs]
        row = row_of(results, "compared_means", model="transformer", name=support, x=5000)
        assert row["mean"] == pytest.approx(np.mean(own))
        pooled = []
        for run in runs:
            masks = run.rows[-1].ood.masks
            assert set(masks) >= OUTSIDE_BOTH
            n, mse, spread = np.array(
                [[getattr(masks[m], key) for key in ("episodes", "mse", "spread")] for m in OUTSIDE_BOTH]
            ).T
            pooled.append(1 - (n @ mse) / (n @ spread))
        both = row_of(results, "compared_both_means", model="transformer", name=support, x=5000)
        assert both["mean"] == pytest.approx(np.mean(pooled))
        assert both["mean"] != pytest.approx(row["mean"], abs=1e-6)
    assert {row["name"] for row in rows_of(results, "compared_means")} == {"connected", "disconnected"}


def test_references_count_once_per_seed() -> None:
    """Two models of seed 0 and one of seed 1: the mean is over two seeds, not over three runs."""
    runs = [make_run("transformer", "connected+", 0), make_run("hypertransformer", "connected+", 0)]
    other = with_reference(make_run("transformer", "connected+", 1), "ridge", "ood", 0.41)
    chart = draw_figure(Study((*runs, other)), "results")
    assert row_of(chart, "ood_references", name="ridge")["value"] == pytest.approx((0.61 + 0.41) / 2)
    assert [row["name"] for row in rows_of(chart, "ood_references")] == ["ridge", "fitted network", "oracle"]


def test_another_support(study: Study) -> None:
    values = [run.rows[-1].ood.r2 for run in runs_of(study, "transformer", "disconnected")]
    row = row_of(draw_figure(study, "results", support="disconnected"), "ood_means", model="transformer", x=5000)
    assert row["mean"] == pytest.approx(np.mean(values))


def test_where_a_seed_is_not_finite_there_is_no_mean() -> None:
    run, other = make_run("transformer", "connected+", 0), make_run("transformer", "connected+", 1)
    bad = with_score(run.rows[-1], "ood", r2=float("nan"), mse=float("inf"))
    chart = draw_figure(Study((replace(run, rows=(*run.rows[:-1], bad)), other)), "results")
    assert row_of(chart, "ood_means", x=5000)["mean"] is None
    assert row_of(chart, "ood_means", x=4875)["mean"] is not None
    json.dumps(chart.to_dict(), allow_nan=False)


def test_masks(study: Study) -> None:
    chart = draw_figure(study, "masks")
    runs = runs_of(study, "hypertransformer")
    assert {row["x"] for row in rows_of(chart, "masks_ood_means")} == {"θ₁+θ₄", "θ₂+θ₅", "θ₃+θ₆"}
    for mask, name in (("100100", "θ₁+θ₄"), ("001001", "θ₃+θ₆")):
        values = [run.rows[-1].ood.masks[mask].r2 for run in runs]
        row = row_of(chart, "masks_ood_means", model="hypertransformer", x=name)
        assert row["mean"] == pytest.approx(np.mean(values))
    order = list(dict.fromkeys(row["x"] for row in rows_of(chart, "masks_in_dist_means")))
    assert len(order) == 12
    assert order == sorted(order)  # module 1's masks first, in every figure


def test_active_modules(study: Study) -> None:
    chart = draw_figure(study, "active_modules")
    values = [run.scorecard.active_modules["4"].r2 for run in runs_of(study, "transformer")]
    assert row_of(chart, "active_modules_means", model="transformer", x=4)["mean"] == pytest.approx(np.mean(values))
    assert row_of(chart, "active_modules_references", name="ridge", x=4)["value"] == pytest.approx(0.61 - 0.08)
    labelled = [row for row in rows_of(chart, "active_modules_references") if "label" in row]
    assert [row["x"] for row in labelled] == [6, 6, 6]


def test_probe_modules_and_interventions(study: Study) -> None:
    runs = runs_of(study, "hypertransformer")
    row = row_of(draw_figure(study, "probe"), "probe_ood_means", model="hypertransformer", x="block 1")
    assert row["mean"] == pytest.approx(np.mean([run.rows[-1].probe.ood[1] for run in runs]))
    chart = draw_figure(study, "modules")
    values = [run.scorecard.modules.single[2].r2 for run in runs]
    assert row_of(chart, "modules_single_means", x="θ₃", name="recovered")["mean"] == pytest.approx(np.mean(values))
    assert row_of(chart, "modules_single_means", x="θ₃", name="ceiling")["mean"] == pytest.approx(0.97)
    assert {row["x"] for row in rows_of(chart, "modules_held_out_means")} == {"θ₁+θ₄", "θ₂+θ₅", "θ₃+θ₆"}
    chart = draw_figure(study, "interventions")
    assert row_of(chart, "latent_ood_means", x="as inferred")["mean"] == pytest.approx(0.95)
    values = [run.scorecard.interventions.points[1].ood.random for run in runs_of(study, "transformer")]
    row = row_of(chart, "subspace_ood_means", model="transformer", x="block 1: a random change")
    assert row["mean"] == pytest.approx(np.mean(values))


def test_what_is_missing_is_said() -> None:
    assert list(figures(whole_study(seeds=1))) == [
        "results",
        "masks",
        "active_modules",
        "probe",
        "modules",
        "interventions",
    ]
    assert list(figures(half_study())) == ["results", "masks", "probe"]
    chart = draw_figure(half_study(), "results")
    assert rows_of(chart, "compared_note") == [{"text": "no run yet"}]
    assert rows_of(chart, "ood_note") == []
    assert list(figures(custom_study())) == ["results", "masks", "active_modules", "probe", "interventions"]
    assert figures(Study(())) == {}


def test_colours_stay_with_their_models() -> None:
    assert ordered_models(["Zeta", "hypertransformer", "Alpha", "transformer"]) == [
        "transformer", "hypertransformer", "Alpha", "Zeta"
    ]  # fmt: skip
    assert colors(["transformer", "hypertransformer"]) == ["#0072b2", "#d55e00"]
    assert colors(["hypertransformer", "Own"])[0] == "#d55e00"
    many = colors(["transformer", "hypertransformer", "informed", *"abcd"])
    assert len(set(many)) == len(many)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (whole_study, ["results", "masks", "active_modules", "probe", "modules", "interventions"]),
        (half_study, ["results", "masks", "probe"]),
        pytest.param(
            custom_study, ["results", "masks", "active_modules", "probe", "interventions"], marks=pytest.mark.slow
        ),
        (hostile_study, ["results", "masks", "active_modules"]),
        (lambda: Study(()), []),
    ],
)
def test_files(tmp_path: Path, make: Any, names: list[str]) -> None:
    study = make()
    paths = write_figures(study, tmp_path / "figures")
    assert [path.name for path in paths] == [f"{name}.{kind}" for name in names for kind in ("png", "svg")]
    for path in paths:
        data = path.read_bytes()
        if path.suffix == ".png":
            assert data.startswith(b"\x89PNG")
            width, height = struct.unpack(">II", data[16:24])
            assert width > 600
            assert height > 400
        else:
            assert b"<script" not in data
            assert all(
                model.split("<")[0] in data.decode() for model in {run.model for run in study.runs if run.scorecard}
            )
