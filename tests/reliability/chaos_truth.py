"""The run that was left alone: what every command must show, or refuse in one line."""

import io
import json
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import tomli_w

from recombine.cli.main import main
from recombine.measure.snapshot import measure_snapshot
from recombine.record.codec import plain
from recombine.run.load import load_model
from recombine.study.collect import collect
from recombine.task.teacher import config_teacher
from tests.reliability.small_run import NUM_STEPS, SMALL, finish

Done = tuple[int, str, str]
"""The exit code of a command, what it printed, and what it printed of errors."""


@cache
def truth_directory() -> Path:
    """The run that was left alone, examined."""
    root = Path(tempfile.mkdtemp(prefix="recombine-truth-"))
    (root / "config.toml").write_text(tomli_w.dumps(SMALL))
    finish(root / "run")
    code, out, error = command("eval", root / "run", "--json")
    assert code == 0, error
    (root / "eval.json").write_text(out)
    return root


@cache
def true_eval() -> dict[str, Any]:
    return json.loads((truth_directory() / "eval.json").read_text())


@cache
def true_rows() -> dict[int, Any]:
    """The rows of metrics of the run that was left alone, by step."""
    return {row.step: row for row in collect([truth_directory() / "run"]).runs[0].rows}


@cache
def true_row(step: int) -> Any:
    """The scores after a step at which no row was due."""
    if step in true_rows():
        return true_rows()[step]
    path = truth_directory() / f"until-{step}"
    finish(path, stop_at=step)
    trained = load_model(path)
    assert trained.step == step
    return measure_snapshot(trained.config, trained.model, config_teacher(trained.config), step)


@cache
def true_report() -> dict[str, dict[str, str]]:
    """The scores in the report of the run that was left alone."""
    code, out, error = report(truth_directory() / "run", truth_directory() / "report")
    assert code == 0, error
    return _scores(out)


def command(*arguments: object) -> Done:
    """A command in this process. A traceback is a failure of the test: it comes out of here."""
    out, error = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(error):
        code = main([str(argument) for argument in arguments])
    return code, out.getvalue(), error.getvalue()


def train_arguments(run: Path, until: int | None = None) -> list[object]:
    settings = ["--preset", "smoke", "--config", truth_directory() / "config.toml", "--save-every", "0"]
    return ["train", "--out", run, *settings, *([] if until is None else ["--stop-at", until])]


def report(runs: Path, out: Path) -> Done:
    """Without the drawing, which takes seconds and shows the same study."""
    with patch("recombine.page.write_report.write_page"), patch("recombine.page.write_report.write_figures"):
        return command("report", runs, "--markdown", "--out", out)


def was_refused(done: Done) -> bool:
    """In one line, after notes at most."""
    code, _, error = done
    if code == 0:
        return False
    complaints = [line for line in error.splitlines() if line.startswith("recombine: ")]
    assert code in (1, 2), done
    assert len(complaints) == 1, error
    return True


def check_rows(rows: Any) -> None:
    steps = [row.step for row in rows]
    assert steps == sorted(set(steps))
    assert [row for row in rows if row != true_rows()[row.step]] == []


def check_examined(done: Done) -> None:
    if was_refused(done):
        return
    shown, truth = json.loads(done[1]), true_eval()
    assert shown["references"] == truth["references"]
    for split in ("in_dist", "ood", "control", "control_modules"):
        assert shown[split] == plain(true_row(shown["step"]))[split]
    if shown["step"] == NUM_STEPS:
        differing = [name for name in truth if name not in ("notes", "sources") and shown[name] != truth[name]]
        assert differing == []


def check_trained(done: Done) -> None:
    """The scores that `train --json` prints."""
    if was_refused(done):
        return
    scores = json.loads(done[1])["scores"]
    assert scores in [
        {name: value for name, value in plain(row).items() if name not in ("step", "loss")}
        for row in true_rows().values()
    ]


def check_reported(done: Done) -> None:
    """References are the same at every step; the model's line tells its step. Without a scorecard of that step it lacks
    a column, or has a dash in it."""
    if was_refused(done):
        return
    truth = true_report()
    for name, cells in _scores(done[1]).items():
        is_model, finished = name.startswith("**"), cells.get(STEPS_COLUMN, "").startswith(f"{NUM_STEPS} ×")
        shown = {column: cell for column, cell in cells.items() if not is_model or cell != NOT_MEASURED}
        if finished or not is_model:
            assert {column: truth[name].get(column) for column in shown} == shown, name


STEPS_COLUMN = "steps × seeds"
NOT_MEASURED = "–"


def _scores(markdown: str) -> dict[str, dict[str, str]]:
    """The cells of the tables of scores, by row and column."""
    found: dict[str, dict[str, str]] = {}
    columns: list[str] = []
    for line in markdown.partition("### Verdicts")[0].splitlines():
        if not line.startswith("|"):
            columns = []
            continue
        name, *cells = [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]
        if not columns:
            columns = cells
        elif "---" not in name:
            found[name] = dict(zip(columns, cells, strict=True))
    return found
