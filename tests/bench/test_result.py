"""The records read the results in `benchmarks/`, and write the same again."""

import json
from pathlib import Path

import pytest

from recombine.bench.result import ColdStart, Comparison, Scaling, Spread
from recombine.record.codec import Record, convert, plain

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize(
    ("name", "key", "kind"),
    [
        ("results.json", "comparisons", Comparison),
        ("scaling.json", "scaling", Scaling),
        ("cold_start.json", "cold_starts", ColdStart),
    ],
)
def test_published_results(name: str, key: str, kind: type[Record]) -> None:
    """The same keys in the same order, and the same values."""
    entries = json.loads((BENCHMARKS / name).read_text(encoding="utf-8"))[key]
    assert len(entries) >= 2
    for entry in entries:
        assert json.dumps(plain(convert(entry, kind))) == json.dumps(entry)


def test_a_spread() -> None:
    assert Spread.of([3.0, 1.0, 2.5]) == Spread(median=2.5, least=1.0, most=3.0, all=(3.0, 1.0, 2.5))
