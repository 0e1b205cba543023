"""Charts, figures as files, and the drawing of a support."""

import json
import zlib
from dataclasses import replace
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from struct import pack, unpack
from typing import Any

import altair as alt
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.figure.chart import LABEL_GAP, spread_out
from recombine.figure.compose import draw_figure
from recombine.figure.save import compressed, read_label, save_figure, with_label
from recombine.figure.support_graph import draw_support
from recombine.study.collect import Study
from recombine.support.parse import parse_support
from recombine.support.random_support import sample_support
from recombine.support.support import Support, paper_support
from tests.study.studies import make_run, whole_study, with_reference, with_score


def panel_layers(chart: Any, title: str) -> list[dict[str, Any]]:
    return next(one for one in chart.to_dict()["concat"] if title in one["title"]["text"])["layer"]


def view(chart: Any, title: str) -> list[float]:
    """The range of a panel's values, which must be the same in all its layers."""
    scales = [one["encoding"]["y"]["scale"] for one in panel_layers(chart, title) if "scale" in one["encoding"]["y"]]
    assert scales
    assert all(scale == scales[0] and scale["clamp"] for scale in scales)
    return scales[0]["domain"]


def test_one_bad_snapshot_does_not_squash_the_picture(results: Any) -> None:
    """The first snapshot of the studies has an R² out of distribution of −40."""
    assert view(results, "A\u2002R²") == [0.0, 1.0]
    text = json.dumps(results.to_dict()["concat"][-1], ensure_ascii=False)
    assert "Beyond the view: at its edge" in text
    assert "C, hypertransformer fresh teacher: −2.48" in text


@pytest.mark.parametrize(
    ("early", "late", "ridge", "expected"),
    [
        (-40.0, 0.9, 0.7, [0.5, 1.0]),
        (0.2, 0.9, 0.4, [0.0, 1.0]),
        (0.9, 0.3, 0.7, [0.0, 1.0]),
        (0.9, -0.2, 0.7, [-0.5, 1.0]),
    ],
)
def test_the_view_is_of_what_was_learned_and_of_the_references(
    early: float, late: float, ridge: float, expected: list[float]
) -> None:
    run = make_run("transformer", "connected+", 0)
    rows = [with_score(row, "ood", r2=early if row.step < 500 else late) for row in run.rows]
    run = with_reference(replace(run, rows=tuple(rows)), "ridge", "ood", ridge)
    chart = draw_figure(Study((run,)), "results")
    assert view(chart, "A\u2002R²") == expected


def test_a_diverged_loss_does_not_squash_the_picture() -> None:
    run = make_run("transformer", "connected+", 0)
    first = with_score(run.rows[0], "in_dist", mse=1e6)
    chart = draw_figure(Study((replace(run, rows=(first, *run.rows[1:])),)), "results")
    low, high = panel_layers(chart, "Loss")[0]["encoding"]["y"]["scale"]["domain"]
    assert high < 1
    assert low < min(row.in_dist.mse for row in run.rows)


@pytest.mark.parametrize(
    ("first", "final", "expected"),
    [
        (0.27, 0.26, {0.25, 0.3, 0.35, 0.4, 0.45}),
        (0.6, 0.4, {0.4, 0.5, 0.6}),
        (0.6, 0.004, {0.01, 0.1, 0.03, 0.3}),
        (0.6, 1e-6, {1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1}),
    ],
)
def test_a_loss_of_any_range_has_ticks(first: float, final: float, expected: set[float]) -> None:
    run = make_run("transformer", "connected+", 0)
    pairs = zip(run.rows, (first, final), strict=False)
    rows = [with_score(row, "in_dist", mse=mse) for row, mse in pairs]
    layers = panel_layers(draw_figure(Study((replace(run, rows=tuple(rows)),)), "results"), "Loss")
    ticks = next(layer["encoding"]["y"]["axis"]["values"] for layer in layers if "axis" in layer["encoding"]["y"])
    assert set(ticks) == expected


def test_panels_side_by_side_have_one_axis(study: Study) -> None:
    """The latent's wrong values are at −0.9, the subspace's at 0.2."""
    for one in draw_figure(study, "interventions").to_dict()["concat"]:
        expected = [-1.0, 1.0] if "Latent" in one["title"]["text"] else [0.0, 1.0]
        domains = [
            layer["encoding"]["x"]["scale"]["domain"] for layer in one["layer"] if "scale" in layer["encoding"]["x"]
        ]
        assert domains
        assert all(domain == expected for domain in domains)


def test_replacing_the_latent_is_read_beside_its_ceiling(study: Study) -> None:
    chart = draw_figure(study, "interventions")
    rows = chart.to_dict()["datasets"]["latent_ood_means"]
    cards = [run.scorecard for run in study.runs if run.support == "connected+" and run.model == "hypertransformer"]
    ceilings = [card.interventions.ood.ceiling for card in cards if card]
    (found,) = [row for row in rows if row["name"] == "ceiling"]
    assert (found["x"], found["mean"]) == ("the true latent", pytest.approx(sum(ceilings) / len(ceilings)))
    untouched = [row for row in chart.to_dict()["datasets"]["subspace_ood_means"] if "untouched" in row["x"]]
    assert [row["x"] for row in untouched] == ["untouched"]


@pytest.mark.parametrize(("last", "ticks"), [(10_000, [0, 2500, 5000, 7500, 10_000]), (40, [0, 10, 20, 30, 40])])
def test_a_training_s_end_has_a_tick(last: int, ticks: list[int]) -> None:
    run = make_run("transformer", "connected+", 0)
    rows = tuple(msgspec.structs.replace(row, step=step) for row, step in zip(run.rows, (0, last), strict=False))
    layers = panel_layers(draw_figure(Study((replace(run, rows=rows),)), "results"), "A\u2002R²")
    axes = [layer["encoding"]["x"]["axis"] for layer in layers if "axis" in layer["encoding"].get("x", {})]
    assert axes
    assert all(axis["values"] == ticks for axis in axes)


def test_bands_are_of_solid_lines(study: Study) -> None:
    bands = [layer for layer in panel_layers(draw_figure(study, "results"), "C") if layer["mark"]["type"] == "area"]
    assert [step["filter"] for band in bands for step in band["transform"] if isinstance(step.get("filter"), dict)] == [
        {"field": "name", "oneOf": ["fresh teacher"]}
    ]


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_point_tells_its_interval_where_there_is_one(seeds: int) -> None:
    layers = panel_layers(draw_figure(whole_study(seeds=seeds), "results"), "A\u2002R²")
    (told,) = [
        {one["field"] for one in layer["encoding"]["tooltip"]}
        for layer in layers
        if any(one["field"] == "mean" for one in layer["encoding"].get("tooltip", []))
    ]
    assert told >= {"model", "x", "mean", "seeds"}
    assert ({"low", "high"} <= told) == (seeds > 1)
    assert ({"low", "high"} & told != set()) == (seeds > 1)


@given(st.lists(st.floats(0, 1), max_size=6).map(sorted))
def test_labels_keep_apart(heights: list[float]) -> None:
    moved = spread_out(heights)
    assert len(moved) == len(heights)
    assert all(b - a >= LABEL_GAP - 1e-9 for a, b in pairwise(moved))
    assert all(height <= 1 for height in moved)
    if all(b - a >= LABEL_GAP for a, b in pairwise(heights)):
        assert moved == heights


def edges(support: Support) -> dict[str, int]:
    """The number of lines of each kind in the graph."""
    values = draw_support(support).to_dict()["hconcat"][0]["layer"][0]["data"]["values"]
    return {kind: sum(row["kind"] == kind for row in values) for kind in ("trained", "held out")}


def test_an_edge_per_pair() -> None:
    assert edges(paper_support("connected+")) == {"trained": 12, "held out": 3}
    assert edges(paper_support("disconnected")) == {"trained": 6, "held out": 9}
    assert edges(parse_support("111000,000111")) == {"trained": 6, "held out": 9}  # a triangle each


@pytest.mark.parametrize(
    "support",
    [paper_support("connected+"), parse_support("1-hot:3"), parse_support("1"), sample_support(12, 3, 20, True, 0)],
    ids=lambda support: support.name,
)
def test_it_renders(tmp_path: Path, support: Support) -> None:
    save_figure(draw_support(support), tmp_path / "a.png")
    save_figure(draw_support(support), tmp_path / "a.SVG")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "a.SVG").read_text(encoding="utf-8")
    assert svg.startswith("<svg")
    assert support.name in svg


def chunks(png: bytes) -> list[tuple[bytes, bytes]]:
    """The chunks of a PNG file; checks their checksums."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    found, at = [], 8
    while at < len(png):
        (size,) = unpack(">I", png[at : at + 4])
        body = png[at + 4 : at + 8 + size]
        assert unpack(">I", png[at + 8 + size : at + 12 + size]) == (zlib.crc32(body),)
        found.append((body[:4], body[4:]))
        at += 12 + size
    return found


def make_png(*named: tuple[bytes, bytes]) -> bytes:
    parts = [pack(">I", len(data)) + name + data + pack(">I", zlib.crc32(name + data)) for name, data in named]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def test_the_same_picture_in_fewer_bytes() -> None:
    pixels = bytes(range(256)) * 400
    data = zlib.compress(pixels, 0)
    header = (b"IHDR", b"a picture's size and kind")
    png = make_png(header, (b"IDAT", data[:1000]), (b"IDAT", data[1000:]), (b"IEND", b""))
    small = compressed(png)
    assert [name for name, _ in chunks(small)] == [b"IHDR", b"IDAT", b"IEND"]
    assert chunks(small)[0] == header
    assert zlib.decompress(chunks(small)[1][1]) == pixels
    assert len(small) < len(png) / 2


def test_a_chart_is_saved_small(tmp_path: Path) -> None:
    chart = alt.Chart(alt.Data(values=[{"a": 1, "b": 2}, {"a": 3, "b": 4}])).mark_line().encode(x="a:Q", y="b:Q")
    save_figure(chart, tmp_path / "a.png", tmp_path / "a.svg")
    png = (tmp_path / "a.png").read_bytes()
    drawn = BytesIO()
    chart.save(drawn, format="png", scale_factor=2)
    assert png == compressed(drawn.getvalue()), "though it is drawn once for both files"
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    assert len(compressed(png)) == len(png), "it was compressed already"
    assert chunks(png)[-1] == (b"IEND", b"")


def test_a_label_in_a_picture(tmp_path: Path) -> None:
    save_figure(alt.Chart(alt.Data(values=[{"a": 1}])).mark_bar().encode(x="a:Q"), tmp_path / "a.png")
    png = (tmp_path / "a.png").read_bytes()
    labelled = with_label(png, "of these numbers")
    assert (read_label(png), read_label(labelled)) == (None, "of these numbers")
    assert compressed(labelled) == labelled, "still a picture, which can be read and written again"
    assert png[33:] == labelled[-len(png) + 33 :], "all behind the header, of 33 bytes, as it was"
