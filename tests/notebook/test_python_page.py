"""docs/python.md is correct: its blocks run in a directory of their own."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
START, DEMO, OWN = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_start_is_short() -> None:
    lines = [line for line in START.splitlines() if line.strip()]
    assert len(lines) <= 12
    assert sum("import" in line for line in lines) == 1


@pytest.mark.parametrize("code", [START, DEMO, OWN], ids=["start", "demo", "own"])
def test_the_python_runs(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "python.md", "exec"), {"__name__": "python_page"})
    printed = capsys.readouterr().out
    assert "in_dist" in printed
    if code == START:
        assert re.search(r"Episodes\(100 of ood .*R² = -?\d", printed)
        assert list(tmp_path.glob("runs/*/metrics.jsonl"))
    if code == DEMO:
        assert (tmp_path / "results.png").stat().st_size > 10_000
