"""Tables, on a terminal, as Markdown and for trackers."""

import json
import re
import sys
from dataclasses import replace
from html import unescape
from io import StringIO
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from recombine.claims import CLAIMS
from recombine.cli.main import main
from recombine.config.preset import preset_config
from recombine.errors import InputError
from recombine.page.report_sections import verdict_section
from recombine.storage.reader import StoredRun
from recombine.study.collect import Study
from recombine.study.summary import FinalScores, ScoreTable, final_scores
from recombine.study.verdict import judge
from recombine.study.wording import with_band
from recombine.support.parse import parse_support
from recombine.support.support import make_support, paper_support
from recombine.terminal.markdown import escaped, score_tables, study_markdown, table, verdict_table
from recombine.terminal.tables import print_scores, print_support, print_table, print_verdicts
from recombine.terminal.track import Tracker
from tests.reliability.small_run import finish
from tests.study.studies import hostile_study, make_run, whole_study, with_reference


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


@pytest.mark.parametrize("width", [40, 80])
def test_a_terminal_folds_no_line_of_a_table(width: int) -> None:
    splits = {split: 0.12345 + i for i, split in enumerate(("in_dist", "ood", "control", "control_modules"))}
    rows = {name: FinalScores(splits, 0.5, -0.25, seeds) for name, seeds in (("hypertransformer", 3), ("MyModel", 1))}
    text = StringIO()
    print_scores(ScoreTable("a title", rows), Console(file=text, width=width, force_terminal=True, color_system=None))
    assert max(len(line) for line in text.getvalue().splitlines()) <= width
    numbers = [word for line in text.getvalue().splitlines() if "MyModel" in line for word in line.split()[1:]]
    assert numbers == ["0.123", "1.123", "2.123", "3.123", "-0.250", "0.500", "1"]


@pytest.mark.parametrize("width", [40, 80])
def test_a_long_title_makes_no_line_longer(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(width=width, force_terminal=True, color_system=None)
    monkeypatch.setattr("recombine.terminal.tables.result_console", lambda highlight: console)
    print_table("of so many words " * 5, ["slope", "R²"], {"trained_covariance": ["0.071 ± 0.046", "0.084 ± 0.076"]})
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert re.findall(r"\S+ ± \S+", "\n".join(lines)) == ["0.071 ± 0.046", "0.084 ± 0.076"]


def test_claims_without_any_run_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    mine = replace(paper_support("connected+"), name="mine")
    config = preset_config("quick", "transformer")
    run = StoredRun(Path("a"), replace(config, task=replace(config.task, support=mine)))
    print_verdicts(judge(Study((run,))))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 8
    assert "claims 1, 2, 3, 4, 5, 6" in lines[-1]
    study = Study((run,))
    for text in (verdict_table(judge(study)), unescape(verdict_section(judge(study)))):
        assert all(claim.sentence in text for claim in CLAIMS)
        assert [part.statistic in text for claim in judge(study) for part in claim.parts].count(True) == 1, "claim 7"


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


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    finish(path := tmp_path_factory.mktemp("tracked") / "run")
    return path


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_finished_run_is_sent(name: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent, settings, ended = [], {}, []
    fake = SimpleNamespace(
        init=lambda **given: settings.update(given),
        log=lambda values, step: sent.append((step, values["r2/ood"])),
        finish=lambda: ended.append(True),
    )
    monkeypatch.setitem(sys.modules, name, fake)
    assert main(["train", "--out", str(run), "--track", name]) == 0
    assert sent == [(row["step"], row["ood"]["r2"]) for row in rows(run)]
    assert settings["config"]["model"]["kind"] == "transformer"
    assert ended


def test_tensorboard_files(run: Path) -> None:
    assert main(["train", "--out", str(run), "--track", "tensorboard"]) == 0
    (events,) = (run / "tensorboard").glob("events.*")
    data = events.read_bytes()
    assert data.count(b"r2/ood") >= len(rows(run))


def test_a_tracker_that_fails_harms_nothing(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (run / "metrics.jsonl").read_bytes()

    def fail(*_: object, **__: object) -> None:
        raise ConnectionError("no network\nand more")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **_: None, log=fail, finish=fail))
    assert main(["train", "--out", str(run), "--track", "wandb"]) == 0
    assert capsys.readouterr().err.count("no network") == 1
    assert (run / "metrics.jsonl").read_bytes() == before


def test_one_that_is_not_installed_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(InputError, match=r"recombine\[trackio\]"):
        Tracker("trackio", tmp_path, preset_config("smoke", "transformer"), lambda text: None)
    assert main(["train", "--out", str(tmp_path / "new"), "--track", "trackio"]) == 2
    assert not (tmp_path / "new").exists()
