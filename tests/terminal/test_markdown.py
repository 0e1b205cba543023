"""Scores and verdicts as Markdown tables, which no name can break."""

import re
from pathlib import Path
from statistics import fmean

import pytest

from recombine.cli.main import main
from recombine.study.verdict import judge
from recombine.study.wording import with_band
from recombine.terminal.markdown import escaped, score_tables, study_markdown, table
from tests.study.studies import hostile_study, whole_study


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_the_scores_are_those_of_the_runs() -> None:
    study = whole_study()
    shown = dict(score_tables(study))
    assert list(shown) == ["connected+", "connected", "disconnected"]
    for support, text in shown.items():
        head, _, *rows = map(cells, text.splitlines())
        assert head[:3] == ["R²", "in distribution", "held-out masks"]
        for row in rows:
            name = row[0].strip("*").replace("\\_", "_")
            runs = [run for run in study.runs if (run.model, run.support) == (name, support)]
            if runs:
                for split, cell in zip(("in_dist", "ood", "control", "control_modules"), row[1:], strict=False):
                    mean = fmean(run.rows[-1].r2(split) for run in runs)
                    assert float(cell.split()[0].replace("−", "-")) == pytest.approx(mean, abs=5.1e-4)
                assert row[-1] == f"{runs[0].num_steps:,} × {len(runs)}"


def test_every_claim_has_its_statistics() -> None:
    study = whole_study()
    verdicts = judge(study)
    text = study_markdown(study, verdicts).split("### Verdicts\n\n")[1]
    rows = [cells(line) for line in text.splitlines()[2:]]
    readings = [reading for verdict in verdicts for reading in (verdict, *verdict.beside, *verdict.explicit)]
    assert [row[3] for row in rows] == [part.statistic for reading in readings for part in reading.parts]
    assert sum(bool(row[2]) for row in rows) == len(readings)
    assert [row[0] for row in rows if row[0]] == ["1", "2", "3", "4", "5", "6", "7"]
    for verdict in verdicts:
        assert f"**{verdict.state}**" in next(row for row in rows if row[0] == str(verdict.number))[2]


def test_no_name_breaks_a_table() -> None:
    study, columns = hostile_study(), 0
    for line in study_markdown(study, judge(study)).splitlines():
        if line.startswith("|"):
            columns = len(cells(line)) if line.startswith(("| R²", "|  |")) else columns
            assert len(cells(line)) == columns, line
        assert not re.search(r"(?<!\\)<", line), "an element that is not escaped"


def test_cells() -> None:
    assert table(("a", "b"), [("x", "1")]) == "| a | b |\n| --- | --: |\n| x | 1 |"
    assert escaped("a|b\n<i>_") == "a\\|b�\\<i\\>\\_"
    assert with_band([]) == "–"
    assert with_band([0.5]) == "0.500"
    assert with_band([1.0, 1.0, 1.0]) == "1.000"
    assert with_band([-0.25, 0.75]) == "0.250 [−0.250, 0.750]"


def test_one_form_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path), "--json", "--markdown"]) == 2
    assert "markdown" in capsys.readouterr().err
