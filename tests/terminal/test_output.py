"""What commands print: JSON, and where it goes."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recombine import terminal
from recombine.terminal.output import print_json

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
WORDS = st.sampled_from(["[1,   2]", "x [ 3,4 ] y", "[\\n5\\n]", '"', "{}"])
VALUES = st.recursive(
    LEAVES | WORDS, lambda inner: st.lists(inner) | st.dictionaries(st.text() | WORDS, inner), max_leaves=20
)


@given(VALUES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_is_the_value_whatever_is_in_its_strings(capsys: pytest.CaptureFixture[str], value: Any) -> None:
    print_json(value)
    assert json.loads(capsys.readouterr().out) == value


def test_whole_numbers_stand_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"masks": [[1, 1, 0], [0, 1, 1]], "empty": [], "words": ["[1,   2]", "é"], "none": {}, "r2": [0.5]})
    assert capsys.readouterr().out.splitlines() == [
        "{",
        '  "masks": [',
        "    [1, 1, 0],",
        "    [0, 1, 1]",
        "  ],",
        '  "empty": [],',
        '  "words": [',
        '    "[1,   2]",',
        '    "é"',
        "  ],",
        '  "none": {},',
        '  "r2": [',
        "    0.5",
        "  ]",
        "}",
    ]


def test_every_console_is_for_results_or_on_stderr() -> None:
    """A plain `Console()` prints where a user's model prints, and its table would be lost among that."""
    for path in Path(terminal.__file__).parent.glob("*.py"):
        for arguments in re.findall(r"\bConsole\((.*?)\)", path.read_text(encoding="utf-8")):
            assert "stderr=True" in arguments or path.name == "output.py", path
