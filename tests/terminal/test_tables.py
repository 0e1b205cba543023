from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from recombine.config.preset import preset_config
from recombine.storage.reader import StoredRun
from recombine.study.collect import Study
from recombine.study.summary import FinalScores, ScoreTable, final_scores
from recombine.study.verdict import judge
from recombine.support.parse import parse_support
from recombine.support.support import make_support, paper_support
from recombine.terminal.tables import print_scores, print_support, print_verdicts
from tests.study.studies import make_run, with_reference


def test_scores_have_a_row_each_and_a_column_per_split(capsys: pytest.CaptureFixture[str]) -> None:
    r2 = {"in_dist": 0.91234, "ood": -0.5}
    title = "A title that is rather long, and longer than the table below it is wide"
    print_scores(ScoreTable(title, {"transformer": FinalScores(r2, 0.75)}, {"ridge": FinalScores(r2)}))
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[0][:2] == ["A", "title"]
    assert ["R²", "in_dist", "ood", "probe"] in lines
    assert ["transformer", "0.912", "-0.500", "0.750"] in lines
    assert ["ridge", "0.912", "-0.500", "–"] in lines


def test_a_long_support_is_cut_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_support(parse_support("2-hot:20"))
    text = capsys.readouterr().out
    assert "and 150 more masks" in text
    assert text.count("trained") == 40


def test_names_are_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    score = FinalScores({"in_dist": 0.5})
    print_support(make_support("[/bold] [red]mine", ["11"]))
    print_scores(ScoreTable("[/bold] trained on [red]mine", {"[/bold]": score}, {"[x]": score}))
    text = capsys.readouterr().out
    assert "[/bold] [red]mine  2 modules" in text
    assert "trained on [red]mine" in text
    assert "[x]" in text


def test_references_count_once_for_a_seed() -> None:
    """One seed has both models, the other only one of them."""
    runs = [make_run("transformer", "connected+", 0), make_run("hypertransformer", "connected+", 0)]
    runs.append(make_run("transformer", "connected+", 1))
    ridge = [0.5, 0.5, 0.8]
    shown = [with_reference(run, "ridge", "ood", r2) for run, r2 in zip(runs, ridge, strict=True)]
    (table,) = final_scores(Study(tuple(shown)))
    assert table.references["ridge"].r2["ood"] == pytest.approx(0.65)


@pytest.mark.parametrize("width", [40, 60, 79, 80, 120])
def test_no_number_is_broken_or_cut_off(width: int) -> None:
    splits = {split: 0.12345 + i for i, split in enumerate(("in_dist", "ood", "control", "control_modules"))}
    rows = {name: FinalScores(splits, 0.5, -0.25, seeds) for name, seeds in (("hypertransformer", 3), ("MyModel", 1))}
    text = StringIO()
    print_scores(ScoreTable("a title", rows), Console(file=text, width=width))
    lines = [line.split() for line in text.getvalue().splitlines()]
    numbers = ["0.123", "1.123", "2.123", "3.123", "-0.250", "0.500"]
    assert [line[-7:] for line in lines if "0.500" in line] == [[*numbers, "3"], [*numbers, "1"]]


def test_claims_without_any_run_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    mine = replace(paper_support("connected+"), name="mine")
    config = preset_config("quick", "transformer")
    run = StoredRun(Path("a"), replace(config, task=replace(config.task, support=mine)))
    print_verdicts(judge(Study((run,))))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 8
    assert "claims 1, 2, 3, 4, 5, 6" in lines[-1]
