from pathlib import Path

import pytest

from recombine.figure.save import save_figure
from recombine.figure.support_graph import draw_support
from recombine.support.parse import parse_support
from recombine.support.random_support import sample_support
from recombine.support.support import Support, paper_support


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
